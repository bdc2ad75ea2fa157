defmodule ExPhil.Native.Policy.GatherTest do
  # Policies that gather the frames of many processes into one launch: the bits, errors and killed callers of those that do
  # not. What is launched when is tested in test/c_src/core/session/gatherer_test.cpp.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import ExPhil.Native.TestSupport.Peer

  @agents 48

  defp load(backend, options \\ []),
    do: Policy.load!(Policies.checkpoint(), [backend: backend, gather: true] ++ options)

  defp in_parallel(count, work),
    do: 1..count |> Enum.map(&Task.async(fn -> work.(&1) end)) |> Task.await_many(:infinity)

  defp frame({:f32, {count, _}, _} = frames, agent, i), do: row(frames, rem(7 * agent + i, count))

  # What a session of a policy that does not gather answers.
  defp expected(plain, frames, agent, count, options \\ []) do
    session = Policy.new_session!(plain, options)
    answers = for i <- 1..count, do: Policy.step!(session, frame(frames, agent, i))
    {answers, Policy.export_state!(session)}
  end

  backend_test "many processes through one policy get the bits of lone steps", %{backend: backend} do
    plain = Policy.load!(Policies.checkpoint(), backend: backend)
    policy = load(backend)
    frames = Policies.frames(64)

    for options <- [[], [history: 5], [window: 6], [window: 3, pad: :none]] do
      played =
        in_parallel(@agents, fn agent ->
          session = Policy.new_session!(policy, options)
          answers = for i <- 1..40, do: Policy.step!(session, frame(frames, agent, i))
          {answers, Policy.export_state!(session)}
        end)

      right = for agent <- 1..@agents, do: expected(plain, frames, agent, 40, options)
      assert played == right
    end

    assert %{frames: count, launches: launches, most: most} = Policy.info!(policy).gathered
    assert count == 4 * @agents * 40
    assert launches <= count
    assert most in 1..@agents
    assert Policy.info!(plain).gathered == nil
  end

  # Launches of many frames: one of the callers delivers the answers of others, and it may be killed before it has.
  backend_test "hundreds of processes at once, of which some are killed", %{backend: backend} do
    plain = Policy.load!(Policies.checkpoint(), backend: backend)
    policy = load(backend)
    frames = Policies.frames(64)
    test = self()

    players =
      for agent <- 1..300 do
        session = Policy.new_session!(policy)

        {pid, _} =
          spawn_monitor(fn ->
            receive do: (:play -> :ok)
            answers = for i <- 1..20, do: Policy.step!(session, frame(frames, agent, i))
            send(test, {:played, agent, answers})
          end)

        {agent, pid}
      end

    for {_, pid} <- players, do: send(pid, :play)
    {killed, kept} = Enum.split_with(players, fn {agent, _} -> rem(agent, 3) == 0 end)
    for {_, pid} <- killed, do: Process.exit(pid, :kill)
    for {_, pid} <- players, do: assert_receive({:DOWN, _, :process, ^pid, _}, 60_000)

    for {agent, _} <- kept do
      assert_received {:played, ^agent, answers}
      if rem(agent, 10) == 1, do: assert(answers == expected(plain, frames, agent, 20) |> elem(0))
    end

    assert Policy.info!(policy).gathered.frames >= 200 * 20 - 1
  end

  @tag :shared
  backend_test "processes that play the recorded match get the bits of lone steps", %{backend: backend} do
    obs = Shared.read("melee/match.safetensors")["obs"]
    plain = Policy.new_session!(Policy.load!(Shared.policy(), backend: backend))
    right = for i <- 0..299, do: Policy.step!(plain, row(obs, i))
    policy = Policy.load!(Shared.policy(), backend: backend, gather: true)

    played =
      in_parallel(12, fn _ ->
        session = Policy.new_session!(policy)
        {for(i <- 0..299, do: Policy.step!(session, row(obs, i))), Policy.export_state!(session)}
      end)

    assert Enum.uniq(played) == [{right, Policy.export_state!(plain)}]
  end

  backend_test "batches, rollbacks, snapshots and imports between gathered frames", %{backend: backend} do
    plain = Policy.load!(Policies.checkpoint(), backend: backend)
    policy = load(backend)
    frames = Policies.frames(64)

    play = fn policy, agent ->
      session = Policy.new_session!(policy, history: 4)
      other = Policy.new_session!(policy, window: 4)

      for i <- 1..30 do
        obs = frame(frames, agent, i)
        out = Policy.step!(session, obs)

        extra =
          case rem(i + agent, 6) do
            0 -> Policy.step_batch!([other, session], obs <> frame(frames, agent, i + 1))
            1 -> Policy.rollback!(session, 1) && Policy.step!(session, frame(frames, agent, i + 2))
            2 -> Policy.resimulate!(session, 1, {:f32, {1, 13}, obs})
            3 -> Policy.restore!(session, Policy.snapshot!(session)) && Policy.step!(other, obs)
            4 -> Policy.import_state!(session, Policy.export_state!(session)) && :imported
            5 -> Policy.prefill!(session, {:f32, {1, 13}, obs})
          end

        {out, extra}
      end ++ [Policy.export_state!(session), Policy.export_state!(other)]
    end

    played = in_parallel(@agents, &play.(policy, &1))
    assert played == for(agent <- 1..@agents, do: play.(plain, agent))
  end

  backend_test "act, with the state of play, and steps between", %{backend: backend} do
    path = Policies.checkpoint_of("gather_heads", Policies.tensors(d_output: 81))
    heads = [buttons: {8, :binary}, main_x: 17, main_y: 17, c_x: 17, c_y: 17, shoulder: 5]
    {:ok, tensors} = Policy.weights(Policy.load!(path, backend: backend))
    frames = Policies.frames(64)

    play = fn policy, agent ->
      session = Policy.new_session!(policy, seed: agent, history: 2)

      for i <- 1..30 do
        if rem(i, 7) == 0, do: Policy.rollback!(session, 1)
        obs = frame(frames, agent, i)
        if rem(i, 4) == 0, do: Policy.step!(session, obs), else: Policy.act!(session, obs)
      end ++ [Policy.export_state!(session)]
    end

    [plain, policy] =
      for gather <- [false, true], do: Policy.load!(tensors, backend: backend, heads: heads, gather: gather)

    played = in_parallel(@agents, &play.(policy, &1))
    assert played == for(agent <- 1..@agents, do: play.(plain, agent))

    assert {:error, %Error{kind: :unsupported}} =
             Policy.act(Policy.new_session!(load(backend)), row(frames, 0))
  end

  backend_test "the errors of one frame are its own", %{backend: backend} do
    policy = load(backend)
    frames = Policies.frames(64)

    results =
      in_parallel(@agents, fn agent ->
        session = Policy.new_session!(policy)

        for i <- 1..20 do
          if rem(agent + i, 3) == 0 do
            assert {:error, %Error{kind: :invalid_argument, argument: "obs"}} = Policy.step(session, "short")
            nan = :binary.copy(<<0, 0, 192, 127>>, 13)
            assert {:error, %Error{kind: :invalid_argument, argument: "obs"}} = Policy.step(session, nan)
            assert {:error, %Error{}} = Policy.step(session, {:f32, {1}, :nothing})
            assert {:error, %Error{kind: :unsupported}} = Policy.act(session, frame(frames, agent, i))
          end

          Policy.step!(session, frame(frames, agent, i))
        end
      end)

    plain = Policy.load!(Policies.checkpoint(), backend: backend)
    assert results == for(agent <- 1..@agents, do: elem(expected(plain, frames, agent, 20), 0))
  end

  backend_test "a tensor gives a tensor", %{backend: backend} do
    session = Policy.new_session!(load(backend))
    obs = row(Policies.frames(1), 0)
    plain = Policy.new_session!(Policy.load!(Policies.checkpoint(), backend: backend))
    assert Policy.step!(session, {:f32, {13}, obs}) == Policy.step!(plain, {:f32, {13}, obs})
  end

  backend_test "one session of several processes answers every frame once, in its order", %{backend: backend} do
    policy = load(backend)
    obs = row(Policies.frames(1), 0)
    alone = Policy.new_session!(Policy.load!(Policies.checkpoint(), backend: backend))
    right = for _ <- 1..240, do: Policy.step!(alone, obs)
    shared = Policy.new_session!(policy)
    answers = in_parallel(8, fn _ -> for _ <- 1..30, do: Policy.step!(shared, obs) end)
    assert answers |> List.flatten() |> Enum.sort() == Enum.sort(right)
    assert Policy.export_state!(shared) == Policy.export_state!(alone)
    order = right |> Enum.with_index() |> Map.new()
    if map_size(order) == 240, do: for(list <- answers, do: assert(list == Enum.sort_by(list, &order[&1])))
  end

  backend_test "callers that are killed leave a session after a whole frame, and no message", %{
    backend: backend
  } do
    policy = load(backend)
    obs = row(Policies.frames(1), 0)
    line = Policy.new_session!(Policy.load!(Policies.checkpoint(), backend: backend))

    states =
      for i <- 0..400 do
        if i > 0, do: Policy.step!(line, obs)
        Policy.export_state!(line)
      end

    states = MapSet.new(states)
    sessions = for _ <- 1..@agents, do: Policy.new_session!(policy)
    test = self()

    pids =
      for session <- sessions do
        spawn(fn ->
          for i <- 1..400 do
            Policy.step!(session, obs)
            if i == 5, do: send(test, :plays)
          end
        end)
      end

    for _ <- pids, do: assert_receive(:plays)
    for pid <- pids, do: Process.exit(pid, :kill)
    for session <- sessions, do: assert(MapSet.member?(states, Policy.export_state!(session)))
    # The next frame plays, in a mailbox without messages of others.
    for session <- sessions, do: assert(byte_size(Policy.step!(session, obs)) == 28)
    refute_received {_ref, _result}
  end

  # In a VM of its own, whose threads are counted: a policy that is not freed keeps one at least.
  @dropped """
  alias ExPhil.Native.Policy
  [path, backend] = System.argv()
  obs = <<0::416>>
  threads = fn -> length(File.ls!("/proc/self/task")) end

  await = fn {_pid, monitor} ->
    receive do
      {:DOWN, ^monitor, _, _, reason} -> reason
    end
  end

  play = fn ->
    policy = Policy.load!(path, backend: String.to_atom(backend), gather: true)
    agent = fn -> for _ <- 1..50, do: Policy.step!(Policy.new_session!(policy), obs) end
    agents = for _ <- 1..16, do: spawn_monitor(agent)
    for {pid, _} <- Enum.take(agents, 8), do: Process.exit(pid, :kill)
    Enum.each(agents, await)
    true = Policy.info!(policy).gathered.frames >= 400
  end

  rounds = fn count -> for _ <- 1..count, do: :normal = await.(spawn_monitor(play)) end

  until = fn until, condition ->
    unless condition.(), do: Process.sleep(5) && until.(until, condition)
  end

  rounds.(5)
  first = threads.()
  rounds.(40)
  until.(until, fn -> threads.() < first + 20 end)
  IO.puts("freed")
  """

  @tag :tmp_dir
  backend_test "policies whose callers were killed are freed, with their threads", %{
    backend: backend,
    tmp_dir: folder
  } do
    script = Path.join(folder, "dropped.exs")
    File.write!(script, @dropped)
    {output, status} = peer_script(script, [Policies.checkpoint(), "#{backend}"], library())
    assert {status, output} == {0, "freed\n"}
  end

  backend_test "update/2 keeps gathering; sessions of the old weights say so", %{backend: backend} do
    policy = load(backend)
    obs = row(Policies.frames(1), 0)
    old = Policy.new_session!(policy)
    {:ok, weights} = Policy.weights(policy)
    {:ok, _} = Policy.update(policy, weights)
    assert {:error, %Error{kind: :mismatch}} = Policy.step(old, obs)
    assert Policy.info!(policy).gathered == %{frames: 0, launches: 0, most: 0}
    session = Policy.new_session!(policy)
    plain = Policy.new_session!(Policy.load!(Policies.checkpoint(), backend: backend))
    assert Policy.step!(session, obs) == Policy.step!(plain, obs)
  end

  test "gather must be true or false" do
    assert {:error, %Error{argument: ":gather"}} =
             Policy.load(Policies.checkpoint(), gather: 3, backend: :host)
  end
end
