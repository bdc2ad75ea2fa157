defmodule ExPhil.Native.Policy.StatesTest do
  # Policies with states of 16 bits, through the public calls. The numbers against the float64 reference are in
  # test/c_src/cuda/policy/narrow_states_test.cpp.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.Policy

  @states [:f32, :f16, :bf16]

  defp load(backend, states, options \\ []),
    do: Policy.load!(Policies.checkpoint(), [backend: backend, states: states] ++ options)

  backend_test "info says the states, and the fingerprint depends on them", %{backend: backend} do
    infos = for states <- @states, do: Policy.info!(load(backend, states))
    assert Enum.map(infos, & &1.states) == @states
    assert infos |> Enum.map(& &1.fingerprint) |> Enum.uniq() |> length() == 3
    assert Policy.info!(Policy.load!(Policies.checkpoint(), backend: backend)) == hd(infos)
  end

  backend_test "steps, batches, prefill, windows and gathered frames have the same bits", %{backend: backend} do
    {:f32, _, all} = frames = Policies.frames(20)

    for states <- @states, precision <- [:f32, :bf16, :tf32x3] do
      policy = load(backend, states, precision: precision, gather: true)
      {session, stepped} = same_bits_in_every_call(policy, frames, history: 8)

      # An exported state is where the session is, and eight frames that are played again have the same answers.
      copy = Policy.import_state!(Policy.new_session!(policy), Policy.export_state!(session))
      again = Policy.resimulate!(session, 8, binary_part(all, 12 * 52, 8 * 52))
      assert again == stepped |> Enum.drop(12) |> IO.iodata_to_binary()
      assert Policy.step!(copy, row(frames, 0)) == Policy.step!(session, row(frames, 0))

      answers =
        1..6
        |> Task.async_stream(fn _ ->
          session = Policy.new_session!(policy)
          for i <- 0..19, do: Policy.step!(session, row(frames, i))
        end)
        |> Enum.map(&elem(&1, 1))

      assert Enum.all?(answers, &(&1 == stepped))
    end
  end

  @tag :gpu
  test "a GPU rounds states, and has room for more of them" do
    {:f32, _, frames} = Policies.frames(20)
    [f32, f16, bf16] = policies = for states <- @states, do: load(:cuda, states)
    [exact, f16_outs, bf16_outs] = for p <- policies, do: Policy.prefill!(Policy.new_session!(p), frames)
    assert relative_error(f16_outs, exact) > 0.0 and relative_error(f16_outs, exact) <= 2.0e-3
    assert relative_error(bf16_outs, exact) > 0.0 and relative_error(bf16_outs, exact) <= 2.0e-2
    assert Policy.info!(f32).resident_bytes > Policy.info!(f16).resident_bytes
    assert Policy.info!(f16).resident_bytes == Policy.info!(bf16).resident_bytes
    assert {:error, %Error{argument: ":latency"} = error} = Policy.new_session(f16, latency: :armed)
    assert Exception.message(error) =~ "16 bits"
  end

  test "a CPU keeps states in f32" do
    {:f32, _, frames} = Policies.frames(20)
    outs = for states <- @states, do: Policy.prefill!(Policy.new_session!(load(:host, states)), frames)
    assert [_] = Enum.uniq(outs)
  end

  test "a state belongs to policies of the same states" do
    state = Policy.export_state!(Policy.new_session!(load(:host, :f16)))

    assert {:error, %Error{kind: :mismatch}} =
             Policy.import_state(Policy.new_session!(load(:host, :f32)), state)

    assert {:ok, _} = Policy.import_state(Policy.new_session!(load(:host, :f16)), state)
  end

  backend_test "training is that of f32, and new weights keep the states", %{backend: backend} do
    frames = uniform(7, {1, 3, 13}, -1.0, 1.0)
    d_outs = uniform(8, {1, 3, 7}, -1.0, 1.0)
    f32 = load(backend, :f32)
    f16 = load(backend, :f16)
    assert Policy.grad!(f16, frames, d_outs) == Policy.grad!(f32, frames, d_outs)
    weights = Policy.weights!(f16)
    assert weights == Policy.weights!(f32)
    updated = Policy.update!(f16, weights)
    assert %{states: :f16, fingerprint: fingerprint} = Policy.info!(updated)
    assert fingerprint == Policy.info!(Policy.load!(weights, backend: backend, states: :f16)).fingerprint
  end

  @tag :tmp_dir
  test "other states are refused by the option's name, and those of a trunk without matrix states", %{
    tmp_dir: folder
  } do
    for bad <- [:f64, :int8, :tf32x3, "f16", nil, 16] do
      assert {:error, %Error{kind: :invalid_argument, argument: ":states"} = error} =
               Policy.load(Policies.checkpoint(), states: bad)

      assert Exception.message(error) =~ ":f32, :f16, :bf16"
    end

    for trunk <- [:gru, :lstm, :min_gru, :min_lstm] do
      path = Path.join(folder, "#{trunk}.safetensors")

      trunk
      |> Policy.init!(d_input: 5, d_output: 3, d_model: 8, layers: 1, backend: :host)
      |> Policy.save!(path)

      assert {:error, %Error{kind: :invalid_argument, argument: ":states"} = error} =
               Policy.load(path, backend: :host, states: :f16)

      assert Exception.message(error) =~ "#{trunk} has no matrix states"
    end
  end
end
