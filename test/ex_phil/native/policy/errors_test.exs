defmodule ExPhil.Native.Policy.ErrorsTest do
  # Bad input of every kind, through the public calls: each gives an error that names the argument, what was expected
  # and what was given, and the session then gives the same bits as one without the bad calls.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  setup context do
    backend = context[:backend] || :host
    model = Policy.load!(Policies.checkpoint(), backend: backend)
    other = Policy.load!(Policies.checkpoint(seed: 2), backend: backend)
    frames = Policies.frames(20)
    session = Policy.new_session!(model, warm_start: rows(frames, 0, 10))
    {:ok, model: model, other: other, frames: frames, session: session, expected: answers(model, frames)}
  end

  # The expected answers of the session to frames 10 to 19.
  defp answers(model, frames) do
    session = Policy.new_session!(model, warm_start: rows(frames, 0, 10))
    for i <- 10..19, do: Policy.step!(session, row(frames, i))
  end

  defp assert_unharmed(%{session: session, frames: frames, expected: expected}) do
    assert for(i <- 10..19, do: Policy.step!(session, row(frames, i))) == expected
  end

  defp assert_error(result, kind, argument, words) do
    assert {:error, %Error{} = error} = result
    assert {error.kind, error.argument} == {kind, argument}
    for word <- words, do: assert(Exception.message(error) =~ word)
  end

  backend_test "invalid observations", %{session: session, frames: frames} = context do
    obs = row(frames, 0)

    for {bad, words} <- [
          {<<>>, ["{13}", "52", "0"]},
          {binary_part(obs, 0, 48), ["52", "48"]},
          {obs <> <<0::32>>, ["52", "56"]},
          {obs <> <<0>>, ["53"]},
          {{:f32, {12}, binary_part(obs, 0, 48)}, ["{13}", "{12}"]},
          {{:f32, {1, 13}, obs}, ["{13}", "{1, 13}"]},
          {{:f32, {13}, obs <> obs}, ["52", "104"]},
          {{:f32, {13}, <<>>}, ["52", "0"]},
          {{:f16, {13}, binary_part(obs, 0, 26)}, ["f32", "f16"]},
          {{:c64, {13}, obs <> obs}, ["f32", "c64"]},
          {{:u8, {13}, binary_part(obs, 0, 13)}, ["u8"]},
          {{:f32, [13], obs}, ["shape"]},
          {{:f32, {-13}, obs}, ["negative"]},
          {{:f32, obs}, ["tensor"]},
          {{}, ["tensor"]},
          {nil, ["nil"]},
          {[1.0, 2.0], ["[1.0, 2.0]"]},
          {12, ["12"]}
        ] do
      assert_error(Policy.step(session, bad), :invalid_argument, "obs", words)
      assert_raise Error, fn -> Policy.step!(session, bad) end
    end

    huge = Bitwise.bsl(1, 62)
    assert_error(Policy.step(session, {:f32, {huge, 4}, obs}), :limit_exceeded, "obs", ["2^63"])
    assert_error(Policy.step(session, {:f32, {Bitwise.bsl(1, 70)}, obs}), :limit_exceeded, "obs", ["2^63"])
    assert_unharmed(context)
  end

  backend_test "invalid frames", %{session: session, model: model, frames: frames} = context do
    {:f32, _, binary} = frames

    for {bad, words} <- [
          {binary_part(binary, 0, 53 * 4), ["52"]},
          {<<1, 2, 3>>, ["3 bytes"]},
          {{:f32, {20, 12}, binary_part(binary, 0, 20 * 48)}, ["{seq, 13}", "{20, 12}"]},
          {{:f32, {13}, row(frames, 0)}, ["{seq, 13}", "{13}"]},
          {{:f32, {1, 20, 13}, binary}, ["{1, 20, 13}"]},
          {{:bf16, {20, 13}, binary_part(binary, 0, 520)}, ["bf16"]},
          {{:f32, {21, 13}, binary}, ["1092", "1040"]},
          {:frames, [":frames"]}
        ] do
      assert_error(Policy.prefill(session, bad), :invalid_argument, "frames", words)

      assert_error(Policy.new_session(model, warm_start: bad), :invalid_argument, ":warm_start", [
        ":warm_start" | words
      ])
    end

    huge = Bitwise.bsl(1, 60)
    assert_error(Policy.prefill(session, {:f32, {huge, 13}, <<>>}), :limit_exceeded, "frames", ["2^63"])
    assert_unharmed(context)
  end

  backend_test "invalid windows", %{model: model, frames: {:f32, _, binary}} = context do
    for {bad, words} <- [
          {{:f32, {20, 13}, binary}, ["{n, seq, 13}", "{20, 13}"]},
          {{:f32, {1, 20, 12}, binary_part(binary, 0, 20 * 48)}, ["{1, 20, 12}"]},
          {{:f32, {0, 20, 13}, <<>>}, ["{0, 20, 13}"]},
          {{:f32, {2, 0, 13}, <<>>}, ["{2, 0, 13}"]},
          {{:f64, {1, 10, 13}, binary}, ["f64"]},
          {binary, ["tensor"]}
        ] do
      assert_error(Policy.window(model, bad), :invalid_argument, "windows", words)
    end

    huge = {:f32, {Bitwise.bsl(1, 40), Bitwise.bsl(1, 40), 13}, <<>>}
    assert_error(Policy.window(model, huge), :limit_exceeded, "windows", ["2^63"])
    assert_unharmed(context)
  end

  backend_test "invalid batches", %{session: session, model: model, other: other} = context do
    second = Policy.new_session!(model)
    before = Policy.export_state!(second)
    {:f32, _, two} = rows(context.frames, 0, 2)
    tensor = {:f32, {2, 13}, two}
    assert_error(Policy.step_batch([], tensor), :invalid_argument, "sessions", ["empty"])
    assert_error(Policy.step_batch([session], tensor), :invalid_argument, "obs", ["{1, 13}", "{2, 13}"])

    assert_error(Policy.step_batch([session, second], <<two::binary, 0::32>>), :invalid_argument, "obs", [
      "104",
      "108"
    ])

    assert_error(Policy.step_batch([session, session], tensor), :invalid_argument, "sessions", ["twice"])
    assert_error(Policy.step_batch([session, :other], tensor), :invalid_argument, "sessions", [":other"])
    assert_error(Policy.step_batch([session | second], tensor), :invalid_argument, "sessions", [])
    assert_error(Policy.step_batch(session, tensor), :invalid_argument, "sessions", ["list"])
    stranger = Policy.new_session!(other)
    assert_error(Policy.step_batch([session, stranger], tensor), :mismatch, "sessions", [])
    assert_error(Policy.step_batch([stranger, second], two), :mismatch, "sessions", [])
    assert Policy.export_state!(second) == before
    assert_unharmed(context)
  end

  backend_test "snapshots of another model's session", %{session: session, other: other} = context do
    snapshot = Policy.snapshot!(Policy.new_session!(other))
    assert_error(Policy.restore(session, snapshot), :mismatch, "snapshot", ["another policy"])
    assert_error(Policy.restore(session, session), :invalid_argument, "snapshot", ["snapshot"])
    assert_error(Policy.restore(snapshot, snapshot), :invalid_argument, "session", ["session"])
    # References of other origin in the right struct.
    forged = %{snapshot | ref: make_ref()}
    assert_error(Policy.restore(session, forged), :invalid_argument, "snapshot", ["#Ref"])
    swapped = %{snapshot | ref: session.ref}
    assert_error(Policy.restore(session, swapped), :invalid_argument, "snapshot", ["#Ref"])

    assert_error(
      Policy.step(%{session | ref: make_ref()}, row(context.frames, 0)),
      :invalid_argument,
      "session",
      []
    )

    assert_unharmed(context)
  end

  backend_test "exported states of another model, or damaged",
               %{session: session, other: other} = context do
    exported = Policy.export_state!(session)

    assert_error(
      Policy.import_state(session, Policy.export_state!(Policy.new_session!(other))),
      :mismatch,
      "state",
      ["the policy with"]
    )

    # Flips one byte in each of 200 places, including all of the header and of the checksum.
    size = byte_size(exported)

    places =
      Enum.uniq(
        Enum.to_list(0..63) ++
          Enum.to_list((size - 8)..(size - 1)) ++ Enum.take_every(64..(size - 9), div(size, 128))
      )

    for at <- places do
      <<head::binary-size(at), byte, tail::binary>> = exported
      flipped = <<head::binary, Bitwise.bxor(byte, 0x10), tail::binary>>
      assert {:error, %Error{kind: kind, argument: "state"}} = Policy.import_state(session, flipped)
      assert kind in [:invalid_state, :mismatch]
    end

    for length <- Enum.uniq(Enum.to_list(0..80) ++ Enum.take_every(80..(size - 1), 97)) do
      assert_error(
        Policy.import_state(session, binary_part(exported, 0, length)),
        :invalid_state,
        "state",
        []
      )
    end

    assert_error(Policy.import_state(session, exported <> <<0>>), :invalid_state, "state", [])
    assert_error(Policy.import_state(session, :state), :invalid_argument, "state", [":state"])
    assert_unharmed(context)
  end

  backend_test "an exported state of another version is an error that names it",
               %{session: session} = context do
    <<magic::binary-size(8), version::32-little, rest::binary>> = Policy.export_state!(session)
    newer = <<magic::binary, version + 1::32-little, rest::binary>>
    assert {:error, %Error{kind: :invalid_state, message: message}} = Policy.import_state(session, newer)
    assert message =~ "version" or message =~ "checksum"
    assert_unharmed(context)
  end

  backend_test "invalid handles", context do
    for bad <- [nil, make_ref(), :session, %{ref: make_ref()}, context.model] do
      assert_error(Policy.step(bad, <<>>), :invalid_argument, "session", ["session"])
      assert_error(Policy.prefill(bad, <<>>), :invalid_argument, "session", [])
      assert_error(Policy.snapshot(bad), :invalid_argument, "session", [])
      assert_error(Policy.export_state(bad), :invalid_argument, "session", [])
      assert_error(Policy.import_state(bad, <<>>), :invalid_argument, "session", [])
    end

    assert_error(Policy.new_session(context.session), :invalid_argument, "policy", [])
    assert_error(Policy.window(context.session, <<>>), :invalid_argument, "policy", [])

    for bad <- [nil, make_ref(), context.session, %{context.model | ref: context.session.ref}] do
      assert_error(Policy.info(bad), :invalid_argument, "policy", ["policy"])
      assert_raise Error, fn -> Policy.info!(bad) end
    end

    assert_error(
      Policy.new_session(%{context.model | ref: context.session.ref}),
      :invalid_argument,
      "policy",
      []
    )

    assert_unharmed(context)
  end

  backend_test "options", %{model: model, backend: backend} = context do
    assert_error(Policy.new_session(model, warm: 1), :invalid_argument, ":warm", ["unknown", ":warm_start"])
    assert_error(Policy.new_session(model, :warm_start), :invalid_argument, "options", ["keyword"])
    load = fn options -> Policy.load(Policies.checkpoint(), [backend: backend] ++ options) end
    assert_error(load.(size: 1), :invalid_argument, ":size", ["unknown", ":max_sessions", ":check_finite"])
    assert_error(load.(max_sessions: 0), :invalid_argument, ":max_sessions", ["0"])
    assert_error(load.(max_sessions: Bitwise.bsl(1, 62)), :invalid_argument, ":max_sessions", [])
    assert_error(load.(max_sessions: Bitwise.bsl(1, 80)), :invalid_argument, ":max_sessions", [])
    assert_error(load.(norm_epsilon: -1.0), :invalid_argument, ":norm_epsilon", ["-1.0"])
    assert_error(load.(norm_epsilon: "1"), :invalid_argument, ":norm_epsilon", [])
    assert_error(load.(check_finite: nil), :invalid_argument, ":check_finite", ["nil"])
    assert_error(load.(precision: :fp8), :invalid_argument, ":precision", [":fp8", ":f32"])
    assert_error(load.(device: 999), :backend_unavailable, ":device", ["999"])
    assert_error(Policy.load(Policies.checkpoint(), backend: :tpu), :invalid_argument, ":backend", [":tpu"])
    assert_unharmed(context)
  end
end
