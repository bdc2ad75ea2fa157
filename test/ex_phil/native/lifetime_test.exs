defmodule ExPhil.Native.LifetimeTest do
  # Memory of what was dropped, sessions on other nodes, and sessions across an upgrade of the module. Each in a VM of its own.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import ExPhil.Native.TestSupport.Peer

  # Megabytes from malloc after a tenth of the rounds, when every pool has its size, and after all of them: what the library
  # holds, whatever the allocator keeps of what was freed.
  @flat """
  alias ExPhil.Native.Policy
  [path] = System.argv()

  defmodule Flat do
    def held do
      :erlang.garbage_collect()
      div(ExPhil.Native.Tools.Reference.allocated_bytes!(), 1_048_576)
    end

    def rounds(name, count, round) do
      in_process(div(count, 10), round)
      first = held()
      in_process(count - div(count, 10), round)
      IO.puts("\#{name} \#{count} \#{first} \#{held()}")
    end

    # Collected there, so that what was dropped does not depend on when the process is gone.
    defp in_process(count, round) do
      work = fn -> for(_ <- 1..count, do: round.()) && :erlang.garbage_collect() end
      Task.await(Task.async(work), :infinity)
    end
  end

  model = Policy.load!(path, backend: :host)
  session = Policy.new_session!(model)
  Flat.rounds("snapshots", 40_000, fn -> Policy.snapshot!(session) && nil end)
  Flat.rounds("sessions", 40_000, fn -> Policy.new_session!(model) && nil end)
  Flat.rounds("loads", 1_000, fn -> Policy.load!(path, backend: :host) && nil end)
  """

  @tag :tmp_dir
  test "states taken and dropped, and policies loaded and dropped, leave the memory in use flat", %{
    tmp_dir: folder
  } do
    script = Path.join(folder, "flat.exs")
    File.write!(script, @flat)
    {output, status} = peer_script(script, [Policies.checkpoint()], library())
    assert {status, output} == {0, output}

    for name <- ["snapshots", "sessions", "loads"] do
      assert [_, first, last] = Regex.run(~r/^#{name} \d+ (\d+) (\d+)$/m, output)
      assert String.to_integer(last) - String.to_integer(first) < 24, output
    end
  end

  # Two nodes that find each other at a port of our own, without the port mapper daemon.
  defp node(name, port, options) do
    erl = "-start_epmd false -erl_epmd_port #{port} -setcookie lifetime " <> options
    ["--name", "#{name}@127.0.0.1", "--erl", erl]
  end

  defp free_port do
    {:ok, socket} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
    {:ok, port} = :inet.port(socket)
    :gen_tcp.close(socket)
    port
  end

  @elsewhere """
  home = :"home@127.0.0.1"
  session = :erpc.call(home, :persistent_term, :get, [:session])
  obs = <<0::416>>
  for call <- [&ExPhil.Native.Policy.step(&1, obs), &ExPhil.Native.Policy.export_state/1] do
    {:error, %ExPhil.Native.Error{kind: :invalid_argument, argument: "session", message: message}} = call.(session)
    IO.puts(message)
  end
  {:ok, <<_::224>>} = :erpc.call(home, ExPhil.Native.Policy, :step, [session, obs])
  IO.puts("PLAYED")
  """

  test "a session used from another node is an error that says so; called where it was made, it plays" do
    port = free_port()
    away = node("away", port, "-dist_listen false") ++ ["-pa", Path.join(Mix.Project.app_path(), "ebin")]

    code = """
    alias ExPhil.Native.Policy
    session = #{inspect(Policies.checkpoint())} |> Policy.load!(backend: :host) |> Policy.new_session!()
    :persistent_term.put(:session, session)
    {output, 0} = System.cmd("elixir", #{inspect(away)} ++ ["-e", #{inspect(@elsewhere)}], stderr_to_stdout: true)
    IO.puts(output)
    """

    {output, status} = peer(code, library(), node("home", port, ""))
    assert {status, output} == {0, output}
    assert [_, _] = Regex.scan(~r/of another node: call where it was made/, output)
    assert output =~ "PLAYED"
  end

  test "a session that was written and read again in its VM is the session, while it is held" do
    session = Policies.checkpoint() |> Policy.load!(backend: :host) |> Policy.new_session!()
    read = session |> :erlang.term_to_binary() |> :erlang.binary_to_term()
    assert byte_size(Policy.step!(read, <<0::416>>)) == 28
    assert Policy.export_state!(read) == Policy.export_state!(session)
  end

  @upgrade """
  alias ExPhil.Native.{Policy, NIF}
  [path] = System.argv()
  model = Policy.load!(path, backend: :host)
  frame = fn agent, i -> for(k <- 0..12, into: "", do: <<:math.sin(agent + i * 13 + k)::float-32-little>>) end
  upgrades = :counters.new(1, [])

  # Plays until the module was upgraded five times: {frames, state}.
  play = fn play, session, agent, i ->
    Policy.step!(session, frame.(agent, i))
    if i >= 200 and :counters.get(upgrades, 1) >= 5,
      do: {i, Policy.export_state!(session)},
      else: play.(play, session, agent, i + 1)
  end

  agents = for agent <- 1..4, do: Task.async(fn -> play.(play, Policy.new_session!(model), agent, 1) end)
  {NIF, beam, file} = :code.get_object_code(NIF)

  upgrade = fn upgrade ->
    # Refused while a process is inside the old module; purge/1 would end that process.
    loaded = :code.soft_purge(NIF) and match?({:module, NIF}, :code.load_binary(NIF, file, beam))
    Process.sleep(1)
    if loaded, do: :counters.add(upgrades, 1, 1)
    if Enum.any?(agents, &Process.alive?(&1.pid)), do: upgrade.(upgrade)
  end

  upgrade.(upgrade)

  for {agent, {frames, state}} <- Enum.zip(1..4, Task.await_many(agents, :infinity)) do
    replay = Policy.new_session!(model)
    for i <- 1..frames, do: Policy.step!(replay, frame.(agent, i))
    ^state = Policy.export_state!(replay)
  end

  count = :counters.get(upgrades, 1)
  IO.puts("UPGRADED \#{count}")
  """

  @tag :tmp_dir
  test "the module upgraded while processes play changes no session's bits", %{tmp_dir: folder} do
    script = Path.join(folder, "upgrade.exs")
    File.write!(script, @upgrade)
    {output, status} = peer_script(script, [Policies.checkpoint()], library())
    assert {status, output} == {0, output}
    assert [_, count] = Regex.run(~r/^UPGRADED (\d+)$/m, output)
    assert String.to_integer(count) >= 5
  end
end
