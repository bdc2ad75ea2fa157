defmodule ExPhil.Native.Fleet.NodesTest do
  # Fleets over several VMs of this machine. Not async: this VM becomes a node meanwhile. What a pause is, and how late frames are, is for
  # bench/fleet.exs.
  use ExUnit.Case

  import ExPhil.Native.TestSupport.FleetNodes

  alias ExPhil.Native.{Error, Fleet, Policy}
  alias ExPhil.Native.Fleet.Spread
  alias ExPhil.Native.TestSupport.{FleetPlayer, Waiting}

  @moduletag :nodes
  @moduletag :either
  @moduletag :tmp_dir
  @moduletag :capture_log
  @history 6
  # A frame waits for as long as the machine needs.
  @patient [timeout: 600_000]

  setup_all do
    on_exit(distribute())
  end

  setup context do
    session = [history: @history, temperature: 0.8, seed: 3]
    {options, policy} = fleet_of(context, session: session, export: 50)
    [fleet: options[:name], policy: policy, options: options]
  end

  # This VM plays no agents: it is the game's.
  defp start_here(options) do
    pid = start_fleet(Keyword.put(options, :devices, []))
    on_exit(fn -> if Process.alive?(pid), do: stop_fleet(pid) end)
    pid
  end

  defp start_there(options) do
    {peer, node} = start()
    on_exit(fn -> if Process.alive?(peer), do: :peer.stop(peer) end)
    start_fleet(peer, options)
    {peer, node}
  end

  # VMs that know each other and not this one, which only controls them.
  defp start_apart(count, options) do
    vms = for _ <- 1..count, do: start(apart: true)
    on_exit(fn -> for {peer, _} <- vms, Process.alive?(peer), do: :peer.stop(peer) end)
    connect(vms)
    for {peer, _} <- vms, do: start_fleet(peer, options)
    vms
  end

  defp on(fleet, node, peer \\ nil),
    do: Enum.find(there(peer, Fleet, :info!, [fleet]).nodes, &(&1.node == node))

  defp playing(fleet),
    do: for(%{node: node, agents: agents} when agents > 0 <- Fleet.info!(fleet).nodes, do: node)

  # Plays frames of an agent and compares each with the session that nothing disturbs.
  defp play(fleet, key, session, numbers, peer \\ nil) do
    for number <- numbers do
      expected = Policy.act!(session, obs(number))

      assert {number, there(peer, Fleet, :act, [fleet, key, number, obs(number), @patient])} ==
               {number, {:ok, expected}}
    end
  end

  test "VMs that are killed and replaced: every answer is that of an undisturbed run, no agent is lost",
       context do
    %{fleet: fleet, policy: policy, options: options} = context
    :rand.seed(:exsss, 20)
    start_here(options)
    vms = for _ <- 1..3, do: start_there(options)
    settled(fleet, [node() | for({_, node} <- vms, do: node)])
    stop = :atomics.new(1, [])
    frames = :counters.new(1, [])

    players =
      for player <- 1..12,
          do: Task.async(fn -> FleetPlayer.run(fleet, player, policy, options[:session], stop, frames) end)

    vms =
      Enum.reduce(1..3, vms, fn _, vms ->
        settled(fleet, [node() | for({_, node} <- vms, do: node)])
        before = :counters.get(frames, 1)
        Waiting.until(fn -> :counters.get(frames, 1) > before + 200 and Fleet.info!(fleet).agents == 12 end)
        {peer, node} = vm = Enum.random(for {_, node} = vm <- vms, node in playing(fleet), do: vm)
        kill(peer)
        Waiting.until(fn -> node not in Enum.map(Fleet.info!(fleet).nodes, & &1.node) end)
        [start_there(options) | List.delete(vms, vm)]
      end)

    settled(fleet, [node() | for({_, node} <- vms, do: node)])
    before = :counters.get(frames, 1)
    Waiting.until(fn -> :counters.get(frames, 1) > before + 200 end)
    :atomics.put(stop, 1, 1)
    assert Enum.all?(Task.await_many(players, :infinity), &(&1 > 0))
    # Some copies may be on their way to the node that came last.
    Waiting.until(fn -> match?(%{agents: 12, copies: 12, answers: true}, Fleet.info!(fleet)) end)
  end

  test "a node that joins takes new agents, near the caller where the load is equal", context do
    %{fleet: fleet, options: options} = context
    start_here(options)
    {_, first} = start_there(options)
    settled(fleet, [node(), first])
    for key <- 1..4, do: Fleet.act!(fleet, key, 0, obs(0), @patient)
    assert %{agents: 4, copies: 0} = on(fleet, first)

    {peer, second} = start_there(options)
    # Agents that had no other node get their copies there.
    settled(fleet, [node(), first, second])
    assert %{agents: 0, copies: 4} = on(fleet, second)
    for key <- 5..8, do: Fleet.act!(fleet, key, 0, obs(0), @patient)
    assert %{agents: 4, copies: 4} = on(fleet, second)
    assert %{agents: 4, copies: 4} = on(fleet, first)

    assert {:ok, _} = call(peer, Fleet, :act, [fleet, {:near, 2}, 0, obs(0), @patient])
    assert %{agents: 5} = on(fleet, second)
  end

  test "copies move to a node that joins, so that the agents of one that dies do not all go on on one other",
       context do
    %{fleet: fleet, options: options, policy: policy} = context
    start_here(options)
    [{peer, first}, {_, second}] = for _ <- 1..2, do: start_there(options)
    settled(fleet, [node(), first, second])
    sessions = for key <- 1..12, do: {key, Policy.new_session!(policy, options[:session])}
    for {key, session} <- sessions, do: play(fleet, key, session, 0..9)
    assert %{agents: 6, copies: 6} = on(fleet, first)
    assert %{agents: 6, copies: 6} = on(fleet, second)

    # 24 agents and copies: some 8 for each node.
    {_, third} = start_there(options)
    Waiting.until(fn -> match?(%{copies: copies} when copies >= 7, on(fleet, third)) end)
    for {key, session} <- sessions, do: play(fleet, key, session, 10..19)
    assert on(fleet, third).agents == 0

    # Of its six agents' copies some are there, others on the other node.
    kill(peer)

    Waiting.until(fn ->
      on(fleet, first) == nil and on(fleet, second).agents + on(fleet, third).agents == 12
    end)

    assert on(fleet, second).agents in 7..11
    for {key, session} <- sessions, do: play(fleet, key, session, 20..29)
    Waiting.until(fn -> match?(%{agents: 12, copies: 12}, Fleet.info!(fleet)) end)
  end

  test "a node's share of the copies that move brings the others down to the mean" do
    load = fn owners, copies, devices -> %{owners: owners, copies: copies, devices: devices} end
    loads = [a: load.(150, 150, 1), b: load.(150, 150, 1), c: load.(0, 0, 1)]
    assert {100, 100} == {Spread.share(loads, :a, :c), Spread.share(loads, :b, :c)}
    # With more devices there is more room.
    loads = [a: load.(150, 150, 1), b: load.(150, 150, 1), c: load.(0, 0, 2)]
    assert {150, 150} == {Spread.share(loads, :a, :c), Spread.share(loads, :b, :c)}
    # Who has less than the mean gives nothing, and no node gets more than that.
    loads = [a: load.(90, 0, 1), b: load.(0, 0, 1), c: load.(0, 0, 1)]
    assert {30, 0} == {Spread.share(loads, :a, :c), Spread.share(loads, :b, :c)}
    loads = [a: load.(10, 10, 1), c: load.(10, 10, 1)]
    assert 0 == Spread.share(loads, :a, :c)
    assert 0 == Spread.share(loads, :elsewhere, :c)
    assert 0 == Spread.share(loads, :a, :elsewhere)
    assert 0 == Spread.share([], :a, :c)
  end

  test "a drained node has neither agents nor copies, and they play on", context do
    %{fleet: fleet, options: options, policy: policy} = context
    start_here(options)
    [{peer, first}, {_, second}, {_, third}] = for _ <- 1..3, do: start_there(options)
    settled(fleet, [node(), first, second, third])
    sessions = for key <- 1..6, do: {key, Policy.new_session!(policy, options[:session])}
    for {key, session} <- sessions, do: play(fleet, key, session, 0..9)
    %{agents: agents} = on(fleet, first)

    # The agents play while they are moved.
    players = for {key, session} <- sessions, do: Task.async(fn -> play(fleet, key, session, 10..200) end)
    assert Fleet.drain(fleet, first) == {:ok, agents}
    # Nothing is left to be done: each agent has a copy again.
    assert %{agents: 6, copies: 6} = Fleet.info!(fleet)
    Task.await_many(players, :infinity)
    assert %{agents: 0, copies: 0, draining: true, moved: ^agents} = on(fleet, first)

    # Not even new ones come.
    for key <- 7..9, do: Fleet.act!(fleet, key, 0, obs(0), @patient)
    assert %{agents: 0, copies: 0} = on(fleet, first)
    kill(peer)
    settled(fleet, [node(), second, third])
    for {key, session} <- sessions, do: play(fleet, key, session, 201..210)
    assert {:error, %Error{kind: :invalid_argument, argument: "node"}} = Fleet.drain(fleet, first)

    assert {:ok, _} = Fleet.drain(fleet, second)
    assert {:error, %Error{kind: :unavailable, message: message}} = Fleet.drain(fleet, third)
    assert message =~ "no other node"
    assert :ok = Fleet.undrain(fleet, second)
    for {key, session} <- sessions, do: play(fleet, key, session, 211..215)
  end

  test "after a drain another node may die: no agent is lost", context do
    %{fleet: fleet, options: options, policy: policy} = context
    start_here(options)
    [{_, first}, {peer, second}, {_, third}] = for _ <- 1..3, do: start_there(options)
    settled(fleet, [node(), first, second, third])
    sessions = for key <- 1..12, do: {key, Policy.new_session!(policy, options[:session])}
    for {key, session} <- sessions, do: play(fleet, key, session, 0..4)
    settled(fleet, [node(), first, second, third])
    assert {:ok, _} = Fleet.drain(fleet, first)
    kill(peer)
    for {key, session} <- sessions, do: play(fleet, key, session, 5..9)
    assert %{agents: 12} = on(fleet, third)
  end

  test "other weights reach every node, one that joins later too", context do
    %{fleet: fleet, options: options, tmp_dir: folder} = context
    {path, policy} = controller(folder, seed: 5)
    start_here(options)
    [{peer, first}, {_, second}] = for _ <- 1..2, do: start_there(options)
    settled(fleet, [node(), first, second])
    for key <- 1..4, number <- 0..79, do: Fleet.act!(fleet, key, number, obs(number), @patient)
    last = for key <- 1..4, do: {key, Fleet.act!(fleet, key, 79, obs(79), @patient)}

    assert {:ok, %{generation: 1, agents: 4}} = Fleet.update(fleet, path)
    # What was answered stays.
    for {key, action} <- last, do: assert(Fleet.act!(fleet, key, 79, obs(79), @patient) == action)

    # A new session that has played the last 60 frames.
    sessions =
      for key <- 1..4 do
        session = Policy.new_session!(policy, options[:session])
        for number <- 20..79, do: Policy.act!(session, obs(number))
        {key, session}
      end

    for {key, session} <- sessions, do: play(fleet, key, session, 80..90)
    kill(peer)
    {_, third} = start_there(options)
    settled(fleet, [node(), second, third])
    Waiting.until(fn -> on(fleet, third).generation == 1 end)
    for {key, session} <- sessions, do: play(fleet, key, session, 91..100)
    assert {:ok, _} = Fleet.drain(fleet, second)
    for {key, session} <- sessions, do: play(fleet, key, session, 101..110)
    session = Policy.new_session!(policy, options[:session])
    play(fleet, :new, session, 0..5)

    assert {:error, %Error{kind: :file_error}} = Fleet.update(fleet, Path.join(folder, "none.bin"))
    # A policy of other sizes is refused by every node before any changes.
    {wide, _} = controller(folder, seed: 6, d_model: 24)
    assert {:error, %Error{kind: :invalid_checkpoint} = error} = Fleet.update(fleet, wide)
    assert error.message =~ "d_model is 24, the fleet's is 16"
    for {key, session} <- sessions, do: play(fleet, key, session, 111..115)
    assert [1] = Enum.uniq(for %{generation: generation} <- Fleet.info!(fleet).nodes, do: generation)
  end

  test "of a split network the side without the majority stops, says so, and joins again", context do
    %{fleet: fleet, options: options, policy: policy} = context
    [{peer, first} = vm, {other, second}, third] = vms = start_apart(3, options)
    nodes = for {_, node} <- vms, do: node
    settled(fleet, nodes, other)
    sessions = for key <- 1..6, do: {key, Policy.new_session!(policy, options[:session])}
    for {key, session} <- sessions, do: play(fleet, key, session, 0..9, peer)
    assert %{agents: 2} = on(fleet, first, peer)

    cut(vm, [{other, second}, third])
    # The majority goes on with every agent.
    for {key, session} <- sessions, do: play(fleet, key, session, 10..19, other)
    assert %{agents: 6, missing: []} = call(other, Fleet, :info!, [fleet])

    for key <- 1..6 do
      assert {:error, %Error{kind: :unavailable} = error} =
               call(peer, Fleet, :act, [fleet, key, 10, obs(10), @patient])

      assert error.message =~ "reaches 1 of the fleet's 3 nodes, which is no majority"
    end

    heal(vm, [{other, second}, third])
    settled(fleet, nodes, other)
    for {key, session} <- sessions, do: play(fleet, key, session, 20..29, peer)
    assert {:ok, _} = call(peer, Fleet, :act, [fleet, :new, 0, obs(0), @patient])
  end

  test "an agent whose copy cannot be asked plays on, and its successor gets those frames from the caller",
       context do
    %{fleet: fleet, options: options, policy: policy} = context
    # It may answer alone for as long as this test takes.
    options = Keyword.put(options, :lease, 60_000)
    [{_, first} = vm, {_, second} = other] = start_apart(2, options)
    # This one plays no agents.
    {caller, third} = game = start(apart: true)
    on_exit(fn -> if Process.alive?(caller), do: :peer.stop(caller) end)
    connect([vm, other, game])
    start_fleet(caller, Keyword.put(options, :devices, []))
    settled(fleet, [first, second, third], caller)
    session = Policy.new_session!(policy, options[:session])
    play(fleet, :agent, session, 0..9, caller)
    settled(fleet, [first, second, third], caller)

    # Its node and that of its copy lose each other. Both reach the third one, so neither is left out.
    {{owning, _} = owner, copying} =
      if on(fleet, first, caller).agents == 1, do: {vm, other}, else: {other, vm}

    cut(owner, [copying])
    play(fleet, :agent, session, 10..14, caller)
    Policy.rollback!(session, 3)
    changed = obs(100)
    expected = Policy.act!(session, changed)
    assert call(caller, Fleet, :act, [fleet, :agent, 12, changed, @patient]) == {:ok, expected}
    assert [{_, _, news}] = call(caller, :ets, :lookup, [fleet, {:unconfirmed, :agent}])
    assert [10, 11, 12, 13, 14, 12] = for({_, {:frames, number, _}} <- news, do: number)

    kill(owning)
    play(fleet, :agent, session, 13..30, caller)
    assert %{taken_over: 1} = on(fleet, elem(copying, 1), caller)
    assert [] = call(caller, :ets, :lookup, [fleet, {:unconfirmed, :agent}])
  end

  test "a copy does not take over from a node that may be alive while the lease of that one's agents lasts",
       context do
    %{fleet: fleet, options: options, policy: policy} = context
    # Longer than this test takes.
    options = Keyword.put(options, :lease, 60_000)
    [{peer, first} = vm, {other, second}, third] = start_apart(3, options)
    settled(fleet, [first, second, elem(third, 1)], other)
    # Near its caller.
    session = Policy.new_session!(policy, options[:session])
    play(fleet, :agent, session, 0..9, peer)
    settled(fleet, [first, second, elem(third, 1)], other)
    assert %{agents: 1} = on(fleet, first, peer)

    cut(vm, [{other, second}, third])

    # Every copy has heard that the node is no member any more: this is answered after it.
    copies =
      for {peer, _} <- [{other, second}, third], pid <- call(peer, Fleet.Directory, :pids, [fleet, :copy]) do
        Waiting.until(fn -> not is_map_key(call(peer, Fleet.View, :get, [fleet]).members, first) end)
        call(peer, Kernel, :send, [pid, :view])
        call(peer, :sys, :get_state, [pid])
      end

    assert [%{role: :copy, armed: true}] = copies

    # When that node is back, the agent plays on there until the node has heard that it is no member; then its copy goes on.
    heal(vm, [{other, second}, third])
    play(fleet, :agent, session, 10..19, other)

    taken_over = fn ->
      for %{taken_over: 1, node: node} <- call(other, Fleet, :info!, [fleet]).nodes, do: node
    end

    Waiting.until(fn -> match?([node] when node != first, taken_over.()) end)
    play(fleet, :agent, session, 20..29, other)
  end

  test "two halves of a split network both stop, and go on together", context do
    %{fleet: fleet, options: options, policy: policy} = context
    [{peer, first} = vm, {other, second}] = start_apart(2, options)
    settled(fleet, [first, second], peer)
    sessions = for key <- 1..4, do: {key, Policy.new_session!(policy, options[:session])}
    for {key, session} <- sessions, do: play(fleet, key, session, 0..9, peer)
    assert %{agents: 2, copies: 2} = on(fleet, first, peer)

    cut(vm, [{other, second}])

    for key <- 1..4, side <- [peer, other] do
      assert {:error, %Error{kind: :unavailable}} =
               call(side, Fleet, :act, [fleet, key, 10, obs(10), @patient])
    end

    heal(vm, [{other, second}])
    for {key, session} <- sessions, do: play(fleet, key, session, 10..19, peer)
    assert %{agents: 2, copies: 2, taken_over: 0} = on(fleet, first, peer)
    # Of two, one goes on where the other has died for certain.
    kill(peer)
    for {key, session} <- sessions, do: play(fleet, key, session, 20..29, other)
  end

  test "an agent whose node dies without a copy is lost, and not begun anew in the middle", context do
    %{fleet: fleet, options: options} = context
    options = Keyword.put(options, :copies, 0)
    start_here(options)
    {peer, first} = start_there(options)

    settled = fn nodes ->
      Waiting.until(fn -> Enum.sort(nodes) == Enum.map(Fleet.info!(fleet).nodes, & &1.node) end)
    end

    settled.([node(), first])
    for number <- 0..4, do: Fleet.act!(fleet, :agent, number, obs(number), @patient)
    {_, second} = start_there(options)
    settled.([node(), first, second])
    kill(peer)
    assert {:error, %Error{kind: :lost, message: message}} = Fleet.act(fleet, :agent, 5, obs(5), @patient)
    assert message =~ "#{first}"
    assert :ok = Fleet.stop(fleet, :agent)
    assert {:ok, _} = Fleet.act(fleet, :agent, 0, obs(0), @patient)
  end

  test "an agent whose node has died goes back over the frames that it played there", context do
    %{fleet: fleet, options: options, policy: policy} = context
    start_here(options)
    vms = for _ <- 1..3, do: start_there(options)
    settled(fleet, [node() | for({_, node} <- vms, do: node)])
    session = Policy.new_session!(policy, options[:session])
    step = &Fleet.step!(fleet, :key, &1, obs(&2), @patient)
    for number <- 0..19, do: assert(step.(number, number) == Policy.step!(session, obs(number)))
    [owning] = playing(fleet)
    {peer, _} = Enum.find(vms, fn {_, node} -> node == owning end)
    kill(peer)
    assert step.(20, 20) == Policy.step!(session, obs(20))

    # Beyond the history nothing changes; then as far as it goes, and once more over frames that were played since.
    assert {:error, %Error{kind: :limit_exceeded}} = Fleet.step(fleet, :key, 20 - @history, obs(99), @patient)

    Policy.rollback!(session, @history)
    from = 21 - @history

    for number <- from..30,
        do: assert(step.(number, 100 + number) == Policy.step!(session, obs(100 + number)))

    Policy.rollback!(session, 3)
    for number <- 28..40, do: assert(step.(number, number) == Policy.step!(session, obs(number)))
  end

  test "an agent plays on while its next copy is made, and that copy has those frames", context do
    %{fleet: fleet, options: options, policy: policy} = context
    start_here(options)
    [{owning, first}, {copying, second}] = for _ <- 1..2, do: start_there(options)
    settled(fleet, [node(), first, second])
    session = Policy.new_session!(policy, options[:session])
    play(fleet, :key, session, 0..9)

    {owning, {copying, node}} =
      if on(fleet, first).agents == 1, do: {owning, {copying, second}}, else: {copying, {owning, first}}

    # The node that the next copy goes to takes its time.
    {slow, third} = start_there(options)
    settled(fleet, [node(), first, second, third])
    agents = Module.concat(fleet, Agents)
    :ok = call(slow, :sys, :suspend, [agents])
    kill(copying)
    Waiting.until(fn -> on(fleet, node) == nil end)
    play(fleet, :key, session, 10..19)

    waiting = fn ->
      call(slow, Process, :info, [call(slow, Process, :whereis, [agents]), :message_queue_len])
    end

    Waiting.until(fn -> match?({_, length} when length > 0, waiting.()) end)
    play(fleet, :key, session, 20..29)
    assert %{copies: 0} = Fleet.info!(fleet)

    :ok = call(slow, :sys, :resume, [agents])
    Waiting.until(fn -> match?(%{copies: 1}, Fleet.info!(fleet)) end)
    kill(owning)
    play(fleet, :key, session, 30..39)
    assert %{agents: 1} = on(fleet, third)
  end

  test "an agent's process that ends is replaced by its copy", context do
    %{fleet: fleet, options: options, policy: policy} = context
    # Of windows this time.
    options = Keyword.put(options, :session, window: 12, history: 4, seed: 5)
    start_here(options)
    [{_, first}, {_, second}] = for _ <- 1..2, do: start_there(options)
    settled(fleet, [node(), first, second])
    session = Policy.new_session!(policy, options[:session])
    play(fleet, :agent, session, 0..20)

    for part <- [21..25, 26..30] do
      Process.exit(Fleet.Directory.find(fleet, :agent), :kill)
      play(fleet, :agent, session, part)
      settled(fleet, [node(), first, second])
      # It was built at a low one.
      pid = Fleet.Directory.find(fleet, :agent)
      assert {:priority, :normal} = :erpc.call(node(pid), Process, :info, [pid, :priority])
    end

    assert :ok = Fleet.stop(fleet, :agent)
    assert %{agents: 0, copies: 0} = Fleet.info!(fleet)
  end

  test "nodes that meet later: the fleet without agents joins the other, two with agents stay apart",
       context do
    %{fleet: fleet, options: options, policy: policy} = context
    vms = for _ <- 1..2, do: start(apart: true)
    on_exit(fn -> for {peer, _} <- vms, Process.alive?(peer), do: :peer.stop(peer) end)
    [{peer, first}, {other, second}] = vms
    apart = Module.concat(fleet, Apart)
    for {peer, _} <- vms, name <- [fleet, apart], do: start_fleet(peer, Keyword.put(options, :name, name))
    session = Policy.new_session!(policy, options[:session])
    play(fleet, :agent, session, 0..5, other)
    alone = for {peer, _} <- vms, do: {peer, Policy.new_session!(policy, options[:session])}
    for {peer, session} <- alone, do: play(apart, :agent, session, 0..5, peer)

    connect(vms)
    settled(fleet, [first, second], peer)
    play(fleet, :agent, session, 6..12, peer)
    assert %{agents: 1, copies: 1} = call(peer, Fleet, :info!, [fleet])
    # Each of the others has an agent of this key, and goes on with it.
    for {peer, session} <- alone, do: play(apart, :agent, session, 6..12, peer)
  end
end
