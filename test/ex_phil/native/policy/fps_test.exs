defmodule ExPhil.Native.Policy.FpsTest do
  # `fps:` changes no answer, whatever the frames do; how much faster it makes them is for bench/paced.exs.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  setup %{backend: backend} do
    {:ok, model: Policy.load!(Policies.checkpoint(), backend: backend)}
  end

  backend_test "sessions with a rate answer as any other: on time, late, early and after a pause", %{
    model: model
  } do
    {:f32, {20, 13}, bytes} = Policies.frames(20)
    frames = for <<frame::binary-size(52) <- bytes>>, do: frame
    plain = Policy.new_session!(model)
    paced = for options <- [[fps: 200], [fps: 200.5, history: 4]], do: Policy.new_session!(model, options)

    for {frame, index} <- Enum.with_index(frames) do
      expected = Policy.step!(plain, frame)
      for session <- paced, do: assert(Policy.step!(session, frame) == expected)
      Process.sleep(Enum.at([5, 5, 5, 9, 1, 5, 60], rem(index, 7)))
    end

    [_one, other] = paced
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
          session = Policy.new_session!(model, fps: 500)

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

  backend_test "bad rates are errors", %{model: model} do
    for bad <- [0, -60, 10_001, 1.0e300, :fast, "60"] do
      assert {:error, %Error{kind: :invalid_argument, argument: ":fps"}} = Policy.new_session(model, fps: bad)
      assert_raise Error, fn -> Policy.new_session!(model, fps: bad) end
    end

    assert Policy.new_session!(model, fps: 60).fps == 60.0
    assert Policy.new_session!(model).fps == nil
  end
end
