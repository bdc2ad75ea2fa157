defmodule ExPhil.Native.Policy.ConcurrencyTest do
  # Models, sessions and snapshots shared between processes, dropped under load, and collected.
  use ExPhil.Native.TestSupport.BackendCase

  setup context do
    model = Policy.load!(Policies.checkpoint(), backend: context[:backend] || :host)
    {:ok, model: model, frames: Policies.frames(64)}
  end

  defp in_parallel(count, work),
    do: 1..count |> Enum.map(&Task.async(fn -> work.(&1) end)) |> Task.await_many(:infinity)

  backend_test "one session shared by 8 processes answers every frame once", %{model: model} do
    # All send the same frame, so the n-th answer does not depend on which process requests it.
    {:f32, _, obs} = Policies.frames(1)
    alone = Policy.new_session!(model)
    expected = for _ <- 1..400, do: Policy.step!(alone, obs)
    shared = Policy.new_session!(model)
    answers = in_parallel(8, fn _ -> for _ <- 1..50, do: Policy.step!(shared, obs) end)
    assert answers |> List.flatten() |> Enum.sort() == Enum.sort(expected)
    assert Policy.export_state!(shared) == Policy.export_state!(alone)
    # In each process the answers are in the session's order.
    order = expected |> Enum.with_index() |> Map.new()
    if map_size(order) == 400, do: for(list <- answers, do: assert(list == Enum.sort_by(list, &order[&1])))
  end

  backend_test "sessions in 8 processes do not affect each other", %{model: model, frames: frames} do
    expected = Policy.prefill!(Policy.new_session!(model), frames)
    alone = Policy.new_session!(model)
    steps = for i <- 0..63, do: Policy.step!(alone, row(frames, i))

    results =
      in_parallel(8, fn i ->
        if rem(i, 2) == 0 do
          for(_ <- 1..20, do: Policy.prefill!(Policy.new_session!(model), frames)) |> Enum.uniq() == [
            expected
          ]
        else
          session = Policy.new_session!(model)
          for(i <- 0..63, do: Policy.step!(session, row(frames, i))) == steps
        end
      end)

    assert Enum.all?(results)
  end

  backend_test "overlapping batches in any order neither deadlock nor mix", %{model: model} do
    sessions = for _ <- 1..6, do: Policy.new_session!(model)
    {:f32, _, obs} = Policies.frames(1)

    in_parallel(8, fn i ->
      for round <- 1..30 do
        chosen = sessions |> Enum.shuffle() |> Enum.take(1 + rem(i + round, 6))
        outs = Policy.step_batch!(chosen, :binary.copy(obs, length(chosen)))
        assert byte_size(outs) == 28 * length(chosen)
      end
    end)

    # Each session stepped the same frame some number of times, so its state is in this list.
    line = Policy.new_session!(model)

    states =
      for _ <- 0..240, into: MapSet.new() do
        state = Policy.export_state!(line)
        Policy.step!(line, obs)
        state
      end

    for session <- sessions, do: assert(MapSet.member?(states, Policy.export_state!(session)))
  end

  backend_test "a snapshot outlives its session and its model's name", %{frames: frames, backend: backend} do
    snapshot =
      Task.await(
        Task.async(fn ->
          model = Policy.load!(Policies.checkpoint(), backend: backend)
          Policy.snapshot!(Policy.new_session!(model, warm_start: rows(frames, 0, 10)))
        end),
        :infinity
      )

    :erlang.garbage_collect()
    session = Policy.new_session!(snapshot.policy)
    Policy.step!(session, row(frames, 0))
    Policy.restore!(session, snapshot)
    expected = Policy.new_session!(snapshot.policy, warm_start: rows(frames, 0, 10))
    assert Policy.step!(session, row(frames, 10)) == Policy.step!(expected, row(frames, 10))
  end

  backend_test "sessions dropped under load are freed", %{model: model, frames: frames} do
    session = Policy.new_session!(model)
    keep = Policy.snapshot!(session)
    before = Policy.info!(model).resident_bytes

    in_parallel(4, fn _ ->
      for round <- 1..300 do
        dropped = Policy.new_session!(model)
        Policy.step!(dropped, row(frames, rem(round, 64)))
        Policy.snapshot!(dropped)
        if rem(round, 50) == 0, do: :erlang.garbage_collect()
      end
    end)

    # 1,200 sessions and 1,200 snapshots were created and dropped: at most a pool's worth of states is still held.
    state = 4 * 2 * (40 * 5 + 40 * 3)
    await_freed(model, before + 1200 * state)
    assert Policy.restore!(session, keep) == session
    assert Policy.export_state!(session) == Policy.export_state!(Policy.new_session!(model))
  end

  # Returns once fewer bytes are resident; what is never freed is the suite's limit of time.
  defp await_freed(model, bytes) do
    :erlang.garbage_collect()

    if Policy.info!(model).resident_bytes >= bytes do
      Process.sleep(10)
      await_freed(model, bytes)
    end
  end

  backend_test "processes killed in the middle of a call leave the session usable", %{
    model: model,
    frames: frames
  } do
    session = Policy.new_session!(model)
    {:f32, _, many} = frames
    many = :binary.copy(many, 20)

    for _ <- 1..30 do
      pid = spawn(fn -> for _ <- 1..1000, do: Policy.prefill!(session, many) end)
      Process.sleep(:rand.uniform(5))
      Process.exit(pid, :kill)
    end

    fresh = Policy.new_session!(model)
    Policy.import_state!(session, Policy.export_state!(fresh))
    assert Policy.step!(session, row(frames, 0)) == Policy.step!(fresh, row(frames, 0))
  end

  backend_test "scans of many sizes at once", %{backend: backend} do
    problems =
      for i <- 1..8 do
        shape = {i, 10 * i, 8 * i}
        {batch, seq, dim} = shape
        b = uniform(i, {batch, seq, 4}, -1.0, 1.0)

        arguments = [
          uniform(i, shape, -1.0, 1.0),
          uniform(i, shape, 0.1, 0.2),
          uniform(i, {dim, 4}, -1.0, -0.1),
          b,
          b,
          [backend: backend]
        ]

        {arguments, apply(SelectiveScan, :scan, arguments)}
      end

    results =
      in_parallel(8, fn _ ->
        for _ <- 1..5,
            {arguments, expected} <- Enum.shuffle(problems),
            do: apply(SelectiveScan, :scan, arguments) == expected
      end)

    assert results |> List.flatten() |> Enum.all?()
  end
end
