defmodule ExPhil.Native.Policy.PaceTest do
  # A pace changes no answer, whatever the frames do; how much faster it makes them is for bench/paced.exs.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  setup %{backend: backend} do
    {:ok, model: Policy.load!(Policies.checkpoint(), backend: backend)}
  end

  backend_test "paced sessions answer as any other: on time, late, early and after a pause", %{model: model} do
    {:f32, {20, 13}, bytes} = Policies.frames(20)
    frames = for <<frame::binary-size(52) <- bytes>>, do: frame
    plain = Policy.new_session!(model)
    paced = for options <- [[pace: 200], [pace: 200.5, history: 4]], do: Policy.new_session!(model, options)

    for {frame, index} <- Enum.with_index(frames) do
      expected = Policy.step!(plain, frame)
      for session <- paced, do: assert(Policy.step!(session, frame) == expected)
      Process.sleep(Enum.at([5, 5, 5, 9, 1, 5, 60], rem(index, 7)))
    end

    [one, other] = paced
    assert {:ok, ^one} = Policy.pace(one, nil)
    assert {:ok, ^one} = Policy.pace(one, nil)
    assert {:ok, ^other} = Policy.pace(other, 1000)
    for session <- paced, do: assert(Policy.export_state!(session) == Policy.export_state!(plain))
    last = bytes |> binary_part(byte_size(bytes) - 3 * 52, 3 * 52)
    assert byte_size(Policy.resimulate!(other, 3, last)) == 3 * 7 * 4
    assert Policy.export_state!(other) == Policy.export_state!(plain)
  end

  backend_test "sessions may be dropped while their frames are expected", %{
    model: model
  } do
    for _ <- 1..5 do
      Task.await(
        Task.async(fn ->
          session = Policy.new_session!(model, pace: 500)

          for _ <- 1..5 do
            Policy.step!(session, <<0::13*32>>)
            Process.sleep(2)
          end
        end),
        :infinity
      )

      :erlang.garbage_collect()
    end
  end

  backend_test "bad paces are errors", %{model: model} do
    session = Policy.new_session!(model)

    for bad <- [0, -60, 10_001, 1.0e300, :fast, "60"] do
      assert {:error, %Error{kind: :invalid_argument, argument: ":pace"}} = Policy.pace(session, bad)
      assert {:error, %Error{argument: ":pace"}} = Policy.new_session(model, pace: bad)
    end

    assert {:error, %Error{argument: "session"}} = Policy.pace(model, 60)
    assert_raise Error, fn -> Policy.pace!(session, 0) end
  end
end
