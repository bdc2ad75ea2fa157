defmodule ExPhil.Native.Policy.RollbackTest do
  # Sessions with a history: rollback/2 and resimulate/3 against sessions that only step, bit for bit.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import Bitwise

  alias ExPhil.Native.Error
  alias ExPhil.Native.TestSupport.Waiting

  setup %{backend: backend} do
    {:ok, model: Policy.load!(Policies.checkpoint(), backend: backend)}
  end

  defp frames(model, count, seed) do
    {values, _} =
      Enum.map_reduce(1..(count * model.info.d_input), :rand.seed_s(:exsss, seed), fn _, state ->
        {u, state} = :rand.uniform_s(state)
        {<<u - 0.5::float-32-little>>, state}
      end)

    size = model.info.d_input * 4
    for <<frame::binary-size(size) <- IO.iodata_to_binary(values)>>, do: frame
  end

  defp replay(model, frames, options) do
    session = Policy.new_session!(model, Keyword.delete(options, :history))
    {Enum.map(frames, &Policy.step!(session, &1)), Policy.export_state!(session)}
  end

  backend_test "a corrected past: rollback and steps, and resimulate, give the bits of a fresh run", %{
    model: model
  } do
    {played, [other | corrected]} = model |> frames(20, 1) |> Enum.split(12)

    for options <- [[history: 7], [history: 7, window: 5], [history: 7, window: 5, pad: :none]] do
      [stepped, at_once] =
        for _ <- 1..2 do
          session = Policy.new_session!(model, options)
          Enum.each(played, &Policy.step!(session, &1))
          session
        end

      {expected, state} = replay(model, Enum.take(played, 5) ++ corrected, options)
      assert {:ok, ^stepped} = Policy.rollback(stepped, 7)
      assert Enum.map(corrected, &Policy.step!(stepped, &1)) == Enum.drop(expected, 5)
      assert Policy.export_state!(stepped) == state

      outs = Policy.resimulate!(at_once, 7, IO.iodata_to_binary(corrected))
      assert outs == IO.iodata_to_binary(Enum.drop(expected, 5))
      assert Policy.export_state!(at_once) == state

      # The frames played again are recorded too; a batch is.
      Policy.step_batch!([stepped, at_once], other <> other)
      {_, before_last} = replay(model, Enum.take(played, 5) ++ Enum.drop(corrected, -3), options)
      assert at_once |> Policy.rollback!(4) |> Policy.export_state!() == before_last
      assert {:ok, <<>>} = Policy.resimulate(stepped, 4, <<>>)
      assert Policy.export_state!(stepped) == before_last
    end
  end

  backend_test "tensors in, tensors out", %{model: model} do
    session = Policy.new_session!(model, history: 3)
    [one, two] = frames(model, 2, 2)
    shape = {2, model.info.d_input}
    d_output = model.info.d_output
    assert {:ok, {:f32, {2, ^d_output}, outs}} = Policy.resimulate(session, 0, {:f32, shape, one <> two})
    assert outs == model |> replay([one, two], []) |> elem(0) |> IO.iodata_to_binary()
  end

  backend_test "beyond the history, and bad arguments: errors that change nothing", %{model: model} do
    [frame] = frames(model, 1, 3)
    session = Policy.new_session!(model, history: 2)
    Policy.step!(session, frame)
    state = Policy.export_state!(session)

    assert {:error, %Error{kind: :limit_exceeded, message: message}} = Policy.rollback(session, 2)
    assert message =~ "can go back 1 frames now (history: 2), got 2"

    assert {:error, %Error{kind: :limit_exceeded, argument: "frames"}} =
             Policy.resimulate(session, 1, String.duplicate(frame, 3))

    for bad <- [-1, 1.0, :two, nil, 1 <<< 70] do
      assert {:error, %Error{kind: :invalid_argument, argument: "frames_back"}} =
               Policy.rollback(session, bad)

      assert {:error, %Error{kind: :invalid_argument, argument: "frames_back"}} =
               Policy.resimulate(session, bad, frame)
    end

    assert {:error, %Error{argument: "frames"}} = Policy.resimulate(session, 1, frame <> <<0>>)
    assert {:error, %Error{argument: "session"}} = Policy.rollback(:nothing, 1)
    assert {:error, %Error{argument: "session"}} = Policy.resimulate(model, 1, frame)
    assert Policy.export_state!(session) == state

    plain = Policy.new_session!(model)
    Policy.step!(plain, frame)
    assert {:error, %Error{kind: :unsupported, message: message}} = Policy.rollback(plain, 1)
    assert message =~ "history: n"

    for bad <- [0, -3, 1.5, :all] do
      assert {:error, %Error{argument: ":history"}} = Policy.new_session(model, history: bad)
    end

    assert {:error, %Error{kind: :limit_exceeded, argument: ":history"}} =
             Policy.new_session(model, history: 1025)

    assert_raise Error, fn -> Policy.rollback!(session, 2) end
    assert_raise Error, fn -> Policy.resimulate!(session, 2, frame) end
  end

  backend_test "a history begins anew after restore, import and prefill", %{model: model} do
    [one, two] = frames(model, 2, 4)
    session = Policy.new_session!(model, history: 4, warm_start: one)
    assert {:error, %Error{kind: :limit_exceeded}} = Policy.rollback(session, 1)
    snapshot = Policy.snapshot!(session)
    state = Policy.export_state!(session)

    for replace <- [
          &Policy.restore!(&1, snapshot),
          &Policy.import_state!(&1, state),
          &(Policy.prefill!(&1, two) && &1)
        ] do
      Policy.step!(session, one)
      replace.(session)
      assert {:error, %Error{kind: :limit_exceeded}} = Policy.rollback(session, 1)
      before = Policy.export_state!(session)
      Policy.step!(session, two)
      assert session |> Policy.rollback!(1) |> Policy.export_state!() == before
    end
  end

  # A process is scheduled out where its call goes on in a dirty job.
  defp moves(call) do
    test = self()
    tracer = spawn_link(fn -> count_moves(test, 0) end)
    :erlang.trace(test, true, [:running, {:tracer, tracer}])
    result = call.()
    :erlang.trace(test, false, [:running])
    delivered = :erlang.trace_delivered(test)
    receive do: ({:trace_delivered, ^test, ^delivered} -> send(tracer, {:take, test}))
    receive do: ({:moves, moves} -> {moves, result})
  end

  defp count_moves(test, moves) do
    receive do
      {:trace, ^test, :out, {ExPhil.Native.NIF, _, _}} -> count_moves(test, moves + 1)
      {:take, ^test} -> send(test, {:moves, moves})
      _ -> count_moves(test, moves)
    end
  end

  @tag backend: :host
  test "on the CPU a few frames are resimulated where the call is made, with the same bits", %{model: model} do
    frames = frames(model, 40, 3)
    corrected = frames |> Enum.take(3) |> IO.iodata_to_binary()
    [here, elsewhere] = for _ <- 1..2, do: Policy.new_session!(model, history: 4)

    # Without a step so far it is not known what a frame takes.
    {1, outs} = moves(fn -> Policy.resimulate!(elsewhere, 0, corrected) end)
    zeros = Policy.export_state!(Policy.new_session!(model))

    # The steps' average decides, in which a machine that was held up shows for some steps.
    Waiting.until(fn ->
      for frame <- frames, do: Policy.step!(here, frame)
      Policy.import_state!(here, zeros)
      assert {moves, ^outs} = moves(fn -> Policy.resimulate!(here, 0, corrected) end)
      moves == 0
    end)

    assert Policy.export_state!(here) == Policy.export_state!(elsewhere)
  end
end
