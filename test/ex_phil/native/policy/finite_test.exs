defmodule ExPhil.Native.Policy.FiniteTest do
  # A frame with a NaN or an infinite value is an error of every call that takes frames. It changes nothing: the session then gives
  # the same bits as one that never saw it.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.Policy
  alias ExPhil.Native.TestSupport.FakeCuda

  # NaN, with another payload and a sign, and both infinities.
  @bad for bits <- [0x7FC00000, 0xFF800001, 0x7F800000, 0xFF800000], do: <<bits::32-little>>

  defp frame(width, i), do: for(k <- 1..width, into: <<>>, do: <<:math.sin(i * k * 0.37)::float-32-little>>)
  defp frames(width, range), do: for(i <- range, into: <<>>, do: frame(width, i))

  # The frames with the value at this place replaced.
  defp spoiled(frames, place, bad) do
    <<head::binary-size(place)-unit(32), _::binary-size(4), tail::binary>> = frames
    <<head::binary, bad::binary, tail::binary>>
  end

  defp assert_refused(result, argument, words) do
    assert {:error, %Error{kind: :invalid_argument, argument: ^argument} = error} = result
    for word <- ["#{argument} must be finite" | words], do: assert(Exception.message(error) =~ word)
  end

  # The last value of the last of the frames; and in a tensor, its first one.
  defp refuse_everywhere(call, argument, frames, shape, words) do
    last = div(byte_size(frames), 4) - 1

    for bad <- @bad do
      frames |> spoiled(last, bad) |> call.() |> assert_refused(argument, words)
      assert_refused(call.({:f32, shape, spoiled(frames, 0, bad)}), argument, ["value 0"])
    end
  end

  defp play(session, width, range), do: for(i <- range, do: Policy.step!(session, frame(width, i)))

  for {name, options} <- [
        carried: [],
        window: [window: 4],
        growing: [window: 4, pad: :none],
        on_time: [fps: 60]
      ] do
    backend_test "calls of a session refuse it and leave the state alone: #{name}", %{backend: backend} do
      model = Policy.load!(Policies.checkpoint(), backend: backend)
      width = model.info.d_input
      options = [history: 3] ++ unquote(options)
      [session, other, fresh] = for _ <- 1..3, do: Policy.new_session!(model, options)
      for s <- [session, other, fresh], do: play(s, width, 1..9)
      state = Policy.export_state!(session)
      one = frame(width, 10)

      refuse_everywhere(&Policy.step(session, &1), "obs", one, {width}, ["value #{width - 1} is"])
      refuse_everywhere(&Policy.prefill(session, &1), "frames", one <> one, {2, width}, ["row 1"])
      refuse_everywhere(&Policy.resimulate(session, 2, &1), "frames", one <> one, {2, width}, ["row 1"])
      both = &Policy.step_batch([session, other], &1)
      refuse_everywhere(both, "obs", one <> one, {2, width}, ["row 1"])

      assert Policy.export_state!(session) == state
      assert Policy.export_state!(other) == state

      assert Policy.rollback!(session, 3) |> play(width, 7..20) ==
               Policy.rollback!(fresh, 3) |> play(width, 7..20)
    end
  end

  # More agents than a GPU steps in one launch: it looks at such frames while it copies them.
  backend_test "a batch of many agents refuses it, and leaves every state alone", %{backend: backend} do
    model = Policy.load!(Policies.checkpoint(), backend: backend)
    width = model.info.d_input

    for count <- [60, 600] do
      sessions = for _ <- 1..count, do: Policy.new_session!(model)
      before = Policy.step_batch!(sessions, frames(width, 1..count))
      states = Enum.map(sessions, &Policy.export_state!/1)
      next = frames(width, 2..(count + 1))

      for {row, bad} <- Enum.zip([0, 1, div(count, 2), count - 1], @bad) do
        words = ["value 5 of row #{row} is"]
        call = &Policy.step_batch(sessions, &1)
        next |> spoiled(row * width + 5, bad) |> call.() |> assert_refused("obs", words)
      end

      assert Enum.map(sessions, &Policy.export_state!/1) == states
      twins = for _ <- 1..count, do: Policy.new_session!(model)
      assert Policy.step_batch!(twins, frames(width, 1..count)) == before
      assert Policy.step_batch!(sessions, next) == Policy.step_batch!(twins, next)
    end
  end

  backend_test "windows and a warm start refuse it", %{backend: backend} do
    model = Policy.load!(Policies.checkpoint(), backend: backend)
    width = model.info.d_input
    six = frames(width, 1..6)

    for bad <- @bad do
      windows = {:f32, {2, 3, width}, spoiled(six, 5 * width + 2, bad)}
      assert_refused(Policy.window(model, windows), "windows", ["value 2 of row 5"])
      start = spoiled(six, 3 * width, bad)
      assert_refused(Policy.new_session(model, warm_start: start), ":warm_start", ["value 0 of row 3"])
    end

    assert {:ok, _} = Policy.window(model, {:f32, {2, 3, width}, six})
  end

  @tag :shared
  backend_test "actions refuse it, and the frame's number and the held buttons stay", %{backend: backend} do
    path = Shared.file("exphil/exphil_policy/policy_old_term.bin")
    policy = Policy.load!(path, backend: backend)
    width = policy.info.d_input
    acts = fn session, range -> for i <- range, do: Policy.act!(session, frame(width, i)) end
    one = frame(width, 10)

    for window <- [nil, :none] do
      options = [window: window, history: 2, seed: 3, deterministic_buttons: true]
      [session, other, fresh] = for _ <- 1..3, do: Policy.new_session!(policy, options)
      for s <- [session, other, fresh], do: acts.(s, 1..9)
      state = Policy.export_state!(session)

      refuse_everywhere(&Policy.act(session, &1), "obs", one, {width}, ["value #{width - 1} is"])

      refuse_everywhere(&Policy.resimulate_acts(session, 1, &1), "frames", one, {1, width}, [
        "value #{width - 1}"
      ])

      both = &Policy.act_batch([session, other], &1)
      refuse_everywhere(both, "obs", one <> one, {2, width}, ["row 1"])

      assert Policy.export_state!(session) == state
      assert Policy.export_state!(other) == state
      assert acts.(session, 10..15) == acts.(fresh, 10..15)
    end
  end

  @tag :fake_cuda
  test "armed sessions, and frames that go on in a dirty job, refuse it" do
    output =
      FakeCuda.play(6, """
      bad = <<0x7FC00000::32-little>> <> binary_part(hd(frames), 4, byte_size(hd(frames)) - 4)
      for options <- [[], [latency: :armed]] do
        session = Policy.new_session!(model, options)
        answers = for frame <- frames do
          {:error, %{argument: "obs", message: "obs must be finite" <> _}} = Policy.step(session, bad)
          Policy.step!(session, frame)
        end
        IO.inspect({answers == outs, Policy.export_state!(session) == state})
      end
      """)

    assert output == String.duplicate("{true, true}\n", 2)
  end
end
