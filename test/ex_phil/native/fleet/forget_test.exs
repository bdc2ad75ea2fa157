defmodule ExPhil.Native.Fleet.ForgetTest do
  # Keys of stopped agents, where nodes are out of reach. Not async: this VM becomes a node meanwhile.
  use ExUnit.Case

  import ExPhil.Native.TestSupport.FleetNodes

  alias ExPhil.Native.Fleet
  alias ExPhil.Native.Fleet.Forget

  @moduletag :nodes
  @moduletag :either
  @moduletag :tmp_dir
  @moduletag :capture_log
  @patient [timeout: 600_000]

  setup_all do
    on_exit(distribute())
  end

  setup context do
    {options, _policy} = fleet_of(context, session: [history: 6])
    [fleet: options[:name], options: options]
  end

  test "a key is new after a stop by a node that does not reach all of the others", context do
    %{fleet: fleet, options: options} = context
    vms = for _ <- 1..3, do: start(apart: true)
    on_exit(fn -> for {peer, _} <- vms, Process.alive?(peer), do: :peer.stop(peer) end)
    connect(vms)
    for {peer, _} <- vms, do: start_fleet(peer, options)
    nodes = for {_, node} <- vms, do: node
    [{one, _} = first, {two, _} = second, {_, third}] = vms
    settled(fleet, nodes, two)

    # Every node knows every agent.
    for key <- 1..9,
        number <- 0..1,
        {peer, _} <- vms,
        do: {:ok, _} = call(peer, Fleet, :act, [fleet, key, number, obs(number), @patient])

    settled(fleet, nodes, two)
    cut(first, [second])
    # Those that play on the third node: it reaches their copies.
    own = for key <- 1..9, pid = call(one, Fleet.Directory, :find, [fleet, key]), node(pid) == third, do: key

    assert length(own) == 3
    for key <- own, do: assert(call(two, Fleet, :stop, [fleet, key, @patient]) == :ok)
    assert [] = for(key <- own, pid = call(one, Fleet.Directory, :find, [fleet, key]), do: pid)
    heal(first, [second])
    settled(fleet, nodes, two)
    for key <- own, do: assert({:ok, _} = call(two, Fleet, :act, [fleet, key, 0, obs(0), @patient]))
  end

  test "a node is told later, and keeps what it knows of another agent with the key", context do
    %{fleet: fleet, options: options} = context
    pid = start_fleet(options)
    on_exit(fn -> if Process.alive?(pid), do: stop_fleet(pid) end)
    ended = spawn(fn -> :ok end)
    monitor = Process.monitor(ended)
    assert_receive {:DOWN, ^monitor, :process, _, _}
    for {key, known} <- [old: ended, new: self()], do: :ets.insert(fleet, {{:known, key}, known})
    :ets.insert(fleet, {{:unconfirmed, :old}, ended, []})
    assert :ok = Forget.late(fleet, [:old, :new, :none])
    assert [{{:known, :new}, _}] = :ets.match_object(fleet, {{:known, :_}, :_})
    assert [] = :ets.lookup(fleet, {:unconfirmed, :old})

    # For a node that is no member any more there is nothing to do.
    :ets.insert(fleet, {{:owed, :gone@nowhere, :old}})
    assert :ok = Forget.settle_now(fleet)
    assert [] = :ets.match(fleet, {{:owed, :_, :_}})
  end
end
