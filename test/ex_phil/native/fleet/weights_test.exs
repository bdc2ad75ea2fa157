defmodule ExPhil.Native.Fleet.WeightsTest do
  # Which weights the nodes of a fleet have: updates, and nodes that join with others. Not async: this VM becomes a node meanwhile.
  use ExUnit.Case

  import ExPhil.Native.TestSupport.FleetNodes

  alias ExPhil.Native.{Error, Fleet, Policy}
  alias ExPhil.Native.Fleet.{Devices, Weights}
  alias ExPhil.Native.TestSupport.Waiting

  @moduletag :nodes
  @moduletag :either
  @moduletag :tmp_dir
  @moduletag :capture_log
  @patient [timeout: 600_000]
  @session [history: 6, temperature: 0.8, seed: 3]

  setup_all do
    on_exit(distribute())
  end

  # This VM plays no agents: it is the game's.
  setup %{tmp_dir: folder} = context do
    {options, policy} = fleet_of(context, session: @session, export: 50)
    {other, others} = controller(folder, seed: 5)
    pid = start_fleet(Keyword.put(options, :devices, []))
    on_exit(fn -> if Process.alive?(pid), do: stop_fleet(pid) end)
    path = options[:policy]
    [fleet: options[:name], path: path, policy: policy, other: other, others: others, options: options]
  end

  defp start_there(options, how \\ []) do
    {peer, node} = start(how)
    on_exit(fn -> if Process.alive?(peer), do: :peer.stop(peer) end)
    start_fleet(peer, options)
    {peer, node}
  end

  defp on(fleet, node), do: Enum.find(Fleet.info!(fleet).nodes, &(&1.node == node))

  defp play(fleet, key, session, numbers) do
    for number <- numbers do
      expected = Policy.act!(session, obs(number))
      assert {number, Fleet.act(fleet, key, number, obs(number), @patient)} == {number, {:ok, expected}}
    end
  end

  # Agents that have played frames 0 to 9, and the sessions that they have with other weights then.
  defp agents(fleet, keys, others) do
    for key <- keys, number <- 0..9, do: Fleet.act!(fleet, key, number, obs(number), @patient)

    for key <- keys do
      session = Policy.new_session!(others, @session)
      for number <- 0..9, do: Policy.act!(session, obs(number))
      {key, session}
    end
  end

  test "an update reaches a node that joined unseen while it was made, and is above every node's", context do
    %{fleet: fleet, options: options, other: other, others: others} = context
    {peer, first} = start_there(options)
    settled(fleet, [node(), first])
    sessions = agents(fleet, 1..4, others)

    # The steps of an update, whose view has two nodes until its end.
    update = {1, make_ref()}
    for node <- [node(), first], do: {:ok, _} = :erpc.call(node, Weights, :prepare, [fleet, update, other])
    assert {:error, %Error{kind: :unavailable}} = Weights.prepare(fleet, {1, make_ref()}, other)
    {joined, second} = start_there(options)
    settled(fleet, [node(), first, second])
    Waiting.until(fn -> call(joined, Weights, :ours, [fleet]) == true end)
    fingerprint = others.info.fingerprint
    assert {:ok, 4} = call(peer, Weights, :commit, [fleet, update, other, fingerprint])
    assert {:ok, 0} = Weights.commit(fleet, update, other, fingerprint)
    assert on(fleet, second).generation == 0
    Devices.follow(fleet)
    Waiting.until(fn -> on(fleet, second).generation == 1 end)

    settled(fleet, [node(), first, second])
    for {key, session} <- sessions, do: play(fleet, key, session, 10..15)
    kill(peer)
    for {key, session} <- sessions, do: play(fleet, key, session, 16..20)
  end

  test "an update is above every node's generation, and takes those along that are behind", context do
    %{fleet: fleet, options: options, path: path, other: other, others: others} = context
    [{peer, first}, {second_peer, second}] = for _ <- 1..2, do: start_there(options)
    settled(fleet, [node(), first, second])
    sessions = agents(fleet, 1..4, others)

    # As where the node that made it has died on the way: one has it.
    update = {1, make_ref()}
    {:ok, fingerprint} = call(peer, Weights, :prepare, [fleet, update, path])
    {:ok, _} = call(peer, Weights, :commit, [fleet, update, path, fingerprint])
    assert {1, 0} = {on(fleet, first).generation, on(fleet, second).generation}

    # By one of those that are behind.
    assert {:ok, %{generation: 2, agents: 4}} = call(second_peer, Devices, :update, [fleet, other])
    assert [2] = Enum.uniq(for %{generation: generation} <- Fleet.info!(fleet).nodes, do: generation)
    for {key, session} <- sessions, do: play(fleet, key, session, 10..15)
  end

  test "a node that dies after the weights were loaded everywhere refuses no update", context do
    %{fleet: fleet, options: options, other: other, others: others} = context
    vms = for _ <- 1..2, do: start_there(options)
    settled(fleet, [node() | for({_, node} <- vms, do: node)])
    sessions = agents(fleet, 1..4, others)
    settled(fleet, [node() | for({_, node} <- vms, do: node)])
    # Not the one that makes the update.
    {peer, first} = Enum.find(vms, fn {_, node} -> node != Fleet.View.chair(fleet) end)

    # Its agents do not change over before it dies.
    for pid <- call(peer, Fleet.Directory, :pids, [fleet, :owner]),
        do: :ok = call(peer, :sys, :suspend, [pid])

    update = Task.async(fn -> Fleet.update(fleet, other) end)
    Waiting.until(fn -> on(fleet, first).generation == 1 end)
    kill(peer)
    assert {:ok, %{generation: 1, agents: 2}} = Task.await(update, :infinity)
    for {key, session} <- sessions, do: play(fleet, key, session, 10..15)
  end

  test "a node that joins takes the fleet's weights, also where its own have a greater number", context do
    %{fleet: fleet, options: options, policy: policy, other: other} = context
    {_, first} = start_there(options)
    settled(fleet, [node(), first])
    {peer, second} = start_there(Keyword.put(options, :policy, other), apart: true)
    Waiting.until(fn -> call(peer, Fleet, :info!, [fleet]).answers end)
    for _ <- 1..2, do: {:ok, _} = call(peer, Fleet, :update, [fleet, other])
    for other <- [node(), first], do: connect(peer, other)
    settled(fleet, [node(), first, second])
    Waiting.until(fn -> call(peer, Weights, :ours, [fleet]) == true end)

    for key <- 1..4, do: play(fleet, key, Policy.new_session!(policy, @session), 0..5)
    assert %{agents: 2, generation: 0} = on(fleet, second)
    # Not what it had.
    assert {:ok, %{generation: 1}} = Fleet.update(fleet, Policy.weights!(policy))
    assert %{generation: 1} = on(fleet, second)
  end

  test "a node that cannot have the fleet's weights takes no agents until an update", context do
    %{fleet: fleet, options: options, path: path, other: other, others: others} = context
    {first_peer, first} = start_there(options)
    settled(fleet, [node(), first])
    # The same path, and another file.
    File.cp!(other, path)
    {peer, second} = start_there(options)
    Waiting.until(fn -> on(fleet, second) != nil and call(peer, Weights, :ours, [fleet]) == false end)
    for key <- 1..4, do: Fleet.act!(fleet, key, 0, obs(0), @patient)
    assert %{agents: 4} = on(fleet, first)
    assert %{agents: 0, copies: 0} = on(fleet, second)
    assert {:error, %Error{kind: :unavailable}} = Fleet.drain(fleet, first)

    assert {:ok, %{agents: 4}} = Fleet.update(fleet, other)
    settled(fleet, [node(), first, second])
    kill(first_peer)
    session = Policy.new_session!(others, @session)
    Policy.act!(session, obs(0))
    play(fleet, 1, session, 1..5)
  end

  test "an update with a path of different files is refused, and changes nothing", context do
    %{fleet: fleet, options: options, tmp_dir: folder, path: path, other: other, policy: policy} = context
    [{_, first}, {peer, second}] = for _ <- 1..2, do: start_there(options)
    settled(fleet, [node(), first, second])
    # Each VM reads it from its own folder.
    for {node, name, from} <- [{first, "one", path}, {second, "two", other}] do
      here = folder |> Path.join(name) |> Path.expand()
      File.mkdir_p!(here)
      File.cp!(from, Path.join(here, "p.safetensors"))
      :ok = :erpc.call(node, File, :cd!, [here])
    end

    assert {:error, %Error{kind: :invalid_checkpoint} = error} = Fleet.update(fleet, "p.safetensors")
    assert error.message =~ "not the same"
    assert call(peer, :ets, :lookup, [fleet, {:update, 1}]) == []
    play(fleet, :agent, Policy.new_session!(policy, @session), 0..5)
  end
end
