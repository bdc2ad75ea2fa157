defmodule Mix.Tasks.Exphil.FleetTest do
  # Not async: there is one Mix shell, and this VM becomes a node.
  use ExUnit.Case

  import ExPhil.Native.TestSupport.{FleetNodes, MixShell}

  alias ExPhil.Native.Fleet
  alias Mix.Tasks.Exphil.Fleet, as: Task

  @moduletag :tmp_dir
  setup :capture

  test "the words that it needs" do
    for {arguments, message} <- [
          {[], "--fleet NAME is needed"},
          {["--fleet", "Bots"], "--node NODE is needed"},
          {["--fleet", "Bots", "--node", "a@b", "--every", "0"], "--every takes a number above 0"},
          {["--fleet", "Bots", "--wrong"], "--wrong is not an option"}
        ] do
      assert_raise Mix.Error, ~r/#{message}/, fn -> Task.run(arguments) end
    end
  end

  describe "with nodes" do
    @describetag :nodes
    setup do
      on_exit(distribute())
    end

    test "one table of a fleet that runs", %{tmp_dir: folder} do
      {path, _} = controller(folder)
      start_supervised!({Fleet, name: Task.Bots, policy: path, load: [backend: :host]})
      for key <- 1..3, do: Fleet.act!(Task.Bots, key, 0, obs(0))

      Task.run(["--fleet", "Mix.Tasks.Exphil.Fleet.Bots", "--node", "#{node()}", "--once"])
      text = output()
      assert text =~ "Mix.Tasks.Exphil.Fleet.Bots: 1 node, 3 agents, 0 copies"
      assert text =~ ~r/^#{node()} +host:0 \(3\) +3 +0 +\d+ +\d+ +0 +0 +0$/m
      assert Node.alive?()

      # From a VM of its own, which is no member.
      code =
        "Mix.start(); Mix.Tasks.Exphil.Fleet.run(~w(--fleet Mix.Tasks.Exphil.Fleet.Bots --node #{node()} --once))"

      environment = ExPhil.Native.TestSupport.Peer.library()

      {output, 0} =
        ExPhil.Native.TestSupport.Peer.peer(code, environment, ["--erl", "-setcookie #{Node.get_cookie()}"])

      assert output =~ "1 node, 3 agents"
      assert Fleet.info!(Task.Bots).view == 0

      assert_raise Mix.Error, ~r/the name of an ExPhil.Native.Fleet that runs on/, fn ->
        Task.run(["--fleet", "NoBots", "--node", "#{node()}", "--once"])
      end

      assert_raise Mix.Error, ~r/none@nowhere cannot be reached/, fn ->
        Task.run(["--fleet", "Bots", "--node", "none@nowhere", "--once"])
      end
    end
  end
end
