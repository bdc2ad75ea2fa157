defmodule ExPhil.Native.Policy.TrainingTest do
  # Gradients, weights and updates through the public calls. The numbers are those of test/c_src/*/policy/gradient_test.cpp.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  import ExPhil.Native.TestSupport.Slopes

  alias ExPhil.Native.{AdamW, Checkpoint, Loss, Safetensors}
  alias ExPhil.Native.Tools.Reference

  defp model(backend), do: Policy.load!(Policies.checkpoint(), backend: backend)
  defp frames(batch, seq), do: uniform(7, {batch, seq, 13}, -1.0, 1.0)
  defp d_outs(batch, seq), do: uniform(8, {batch, seq, 7}, -1.0, 1.0)

  defp f64({:f32, shape, binary}),
    do: {:f64, shape, for(<<v::float-32-little <- binary>>, into: <<>>, do: <<v::float-64-little>>)}

  backend_test "the gradient has a tensor for every weight, and is the scalar reference's", %{
    backend: backend
  } do
    model = model(backend)
    weights = Policy.weights!(model)
    gradients = Policy.grad!(model, frames(3, 20), d_outs(3, 20))
    wide = Map.new(weights, fn {name, tensor} -> {name, f64(tensor)} end)
    {outs, expected} = Reference.policy_grad!(model, wide, frames(3, 20), f64(d_outs(3, 20)))
    assert Map.keys(gradients) == Map.keys(weights)

    for {name, {:f32, shape, _} = gradient} <- gradients do
      assert {:f32, ^shape, _} = weights[name]
      assert relative_error(gradient, expected[name]) < 2.0e-5, name
    end

    assert relative_error(Policy.forward!(model, frames(3, 20)), outs) < 1.0e-5
  end

  backend_test "forward gives what sessions give, from a zero state and from a given one", %{backend: backend} do
    model = model(backend)
    {:f32, shape, binary} = frames(1, 30)
    outs = Policy.forward!(model, frames(1, 30))
    prefilled = {:f32, put_elem(shape, 2, 7), Policy.prefill!(Policy.new_session!(model), binary)}
    # On CUDA the kernels of a session add up in another order.
    if backend == :host,
      do: assert(prefilled == outs),
      else: assert(relative_error(prefilled, f64(outs)) < 1.0e-5)

    assert {^outs, %{ssm: _, conv: _}} = Policy.forward!(model, frames(1, 30), return_state: true)
    half = byte_size(binary) |> div(2)
    cut = fn start -> {:f32, {1, 15, 13}, binary_part(binary, start, half)} end
    {first, state} = Policy.forward!(model, cut.(0), return_state: true)
    second = Policy.forward!(model, cut.(half), initial_state: state)
    # The gradient's own scan may cut a shorter sequence otherwise.
    both = {:f32, {1, 30, 7}, elem(first, 2) <> elem(second, 2)}

    if backend == :host,
      do: assert(both == outs),
      else: assert(relative_error(both, f64(outs)) < 1.0e-5)

    {_, d_frames} = Policy.grad!(model, frames(1, 30), d_outs(1, 30), d_frames: true)
    assert {:f32, {1, 30, 13}, _} = d_frames
    assert %{} = Policy.grad!(model, cut.(half), d_outs(1, 15), initial_state: state)
  end

  backend_test "the gradient of the initial state, of chunks as short as one frame", %{backend: backend} do
    model = model(backend)
    {_, state} = Policy.forward!(model, frames(2, 9), return_state: true)

    for seq <- [1, 2, 9] do
      d_state = check_state_gradient(model, frames(2, seq), d_outs(2, seq), state)
      assert Map.keys(d_state) == [:conv, :ssm]
    end

    # Of a new agent too, whose state is not given.
    {_, d_state} = Policy.grad!(model, frames(2, 9), d_outs(2, 9), d_initial_state: true)
    assert Map.keys(d_state) == [:conv, :ssm]
  end

  backend_test "bad arguments are errors that name them", %{backend: backend} do
    model = model(backend)
    refused = fn result, argument -> assert {:error, %Error{argument: ^argument}} = result end
    refused.(Policy.grad(model, uniform(1, {2, 3, 12}, 0.0, 1.0), d_outs(2, 3)), "frames")
    refused.(Policy.grad(model, uniform(1, {3, 13}, 0.0, 1.0), d_outs(2, 3)), "frames")
    refused.(Policy.grad(model, {:f32, {0, 3, 13}, <<>>}, d_outs(2, 3)), "frames")
    refused.(Policy.grad(model, frames(2, 3), d_outs(2, 4)), "d_outs")
    refused.(Policy.grad(model, frames(2, 3), f64(d_outs(2, 3))), "d_outs")
    refused.(Policy.grad(model, frames(2, 3), d_outs(2, 3), initial_state: %{}), ":initial_state")
    {_, whole} = Policy.forward!(model, frames(2, 3), return_state: true)

    for {part, text} <- [
          {Map.delete(whole, :conv), ":conv is missing"},
          {Map.delete(whole, :ssm), ":ssm is missing"},
          {Map.put(whole, :other, whole.ssm), ":other is none of them"}
        ] do
      assert {:error, %{message: message}} = Policy.forward(model, frames(2, 3), initial_state: part)
      assert message =~ "must have the parts of a state, "
      assert message =~ ":conv"
      assert message =~ text
    end

    {_, state} = Policy.forward!(model, frames(1, 3), return_state: true)
    refused.(Policy.grad(model, frames(2, 3), d_outs(2, 3), initial_state: state), ":initial_state")
    refused.(Policy.grad(model, frames(2, 3), d_outs(2, 3), d_initial_state: 1), ":d_initial_state")
    refused.(Policy.grad(model, frames(2, 3), d_outs(2, 3), other: 1), ":other")

    refused.(Policy.grad(:none, frames(2, 3), d_outs(2, 3)), "policy")
    refused.(Policy.forward(model, :none), "frames")
    refused.(Policy.weights(:none), "policy")
    refused.(Policy.update(model, [1]), "weights")
    refused.(Policy.update(model, Map.delete(Policy.weights!(model), "head.bias")), "weights")

    refused.(
      Policy.update(model, Map.put(Policy.weights!(model), "spare", {:f32, {1}, <<0::32>>})),
      "weights"
    )

    nan = {:f32, {7}, :binary.copy(<<0, 0, 192, 127>>, 7)}
    update = Policy.update(model, Map.put(Policy.weights!(model), "head.bias", nan))
    refused.(update, "weights")
    # An option of load/2 only.
    refute inspect(update) =~ "check_finite"
    assert {:ok, _} = Policy.step(Policy.new_session!(model), row(Policies.frames(1), 0))
  end

  backend_test "an update changes the answers and the fingerprint, and ends the old sessions", %{
    backend: backend
  } do
    model = model(backend)
    old = Policy.info!(model)
    obs = row(Policies.frames(1), 0)
    session = Policy.new_session!(model)
    snapshot = Policy.snapshot!(session)
    exported = Policy.export_state!(session)
    other = Policies.checkpoint(seed: 2)
    expected = Policy.load!(other, backend: backend)

    assert {:ok, updated} = Policy.update(model, Safetensors.read!(other))
    assert Policy.info!(updated).fingerprint == Policy.info!(expected).fingerprint
    assert Policy.info!(model).fingerprint != old.fingerprint

    for {:error, error} <- [
          Policy.step(session, obs),
          Policy.prefill(session, obs),
          Policy.step_batch([session], obs),
          Policy.snapshot(session),
          Policy.restore(session, snapshot),
          Policy.export_state(session),
          Policy.restore(Policy.new_session!(model), snapshot),
          Policy.import_state(Policy.new_session!(model), exported)
        ] do
      assert error.kind == :mismatch
    end

    assert {:error, %Error{kind: :mismatch, argument: "session"}} = Policy.step(session, obs)
    assert Policy.step!(Policy.new_session!(model), obs) == Policy.step!(Policy.new_session!(expected), obs)
  end

  backend_test "updated weights are loaded by the call that plays them, once for all of them", %{
    backend: backend
  } do
    expected = Policy.load!(Policies.checkpoint(seed: 2), backend: backend)
    model = model(backend)
    outs = Policy.forward!(expected, frames(3, 8))
    gradients = Policy.grad!(expected, frames(3, 8), d_outs(3, 8))
    # Of a gradient alone, on CUDA.
    beside = Policy.info!(expected).resident_bytes
    model = Policy.update!(model, Policy.weights!(expected))
    assert Policy.info!(model).resident_bytes == 0
    assert Policy.forward!(model, frames(3, 8)) == outs
    assert Policy.grad!(model, frames(3, 8), d_outs(3, 8)) == gradients
    info = Policy.info!(model)
    assert info.resident_bytes < beside
    assert info.fingerprint == Policy.info!(expected).fingerprint
    assert model.info.fingerprint == info.fingerprint

    obs = row(Policies.frames(1), 0)
    windows = frames(2, 9)
    plays = fn policy -> {Policy.step!(Policy.new_session!(policy), obs), Policy.window!(policy, windows)} end
    answers = 1..8 |> Enum.map(fn _ -> Task.async(fn -> plays.(model) end) end) |> Task.await_many(:infinity)
    assert Enum.uniq(answers) == [plays.(expected)]
    assert Policy.info!(model).resident_bytes > info.resident_bytes

    # Errors are those of update itself, and leave the weights as they are.
    {:f32, shape, <<_::32, rest::binary>>} = Policy.weights!(model)["head.bias"]
    nan = %{Policy.weights!(model) | "head.bias" => {:f32, shape, <<0x7FC00000::32-little, rest::binary>>}}
    assert {:error, %Error{argument: "weights", message: message}} = Policy.update(model, nan)
    assert message =~ "head.bias"
    assert Policy.forward!(model, frames(3, 8)) == outs
    assert plays.(model) == hd(answers)
  end

  @tag :tmp_dir
  test "weights that were read, put back or saved are the same model", %{tmp_dir: folder} do
    model = Policy.load!(Policies.checkpoint(), backend: :host, norm_epsilon: 1.0e-3)
    info = Policy.info!(model)
    assert Policy.info!(Policy.update!(model, Policy.weights!(model))).fingerprint == info.fingerprint

    path = Path.join(folder, "saved.safetensors")
    :ok = Safetensors.write(path, Policy.weights!(model), Checkpoint.metadata(info))
    assert Policy.info!(Policy.load!(path, backend: :host)).fingerprint == info.fingerprint
  end

  @tag :shared
  backend_test "the gradient of Edifice's and ExPhil's policies is the scalar reference's", %{
    backend: backend
  } do
    for file <- ["exphil/exphil_policy/policy.bin", "exphil/edifice_mamba2/short_window.nx"] do
      model = Policy.load!(Path.join(Shared.path(), file), backend: backend)
      wide = Map.new(Policy.weights!(model), fn {name, tensor} -> {name, f64(tensor)} end)
      frames = uniform(3, {1, 12, 287}, -1.0, 1.0)
      d_outs = uniform(4, {1, 12, Policy.info!(model).d_output}, -1.0, 1.0)
      {_, expected} = Reference.policy_grad!(model, wide, frames, f64(d_outs))

      for {name, gradient} <- Policy.grad!(model, frames, d_outs) do
        assert relative_error(gradient, expected[name]) < 5.0e-5, name
      end
    end
  end

  @tag :shared
  @tag :tmp_dir
  test "policies of Edifice and ExPhil too", %{tmp_dir: folder} do
    for file <- ["exphil/exphil_policy/policy.bin", "exphil/edifice_mamba2/short_window.nx"] do
      model = Policy.load!(Path.join(Shared.path(), file), backend: :host)
      weights = Policy.weights!(model)
      path = Path.join(folder, "saved.safetensors")
      :ok = Safetensors.write(path, weights, Checkpoint.metadata(Policy.info!(model)))
      saved = Policy.load!(path, backend: :host)
      frames = uniform(3, {1, 12, 287}, -1.0, 1.0)
      assert Policy.forward!(saved, frames) == Policy.forward!(model, frames)
      assert Policy.info!(Policy.update!(model, weights)).fingerprint == Policy.info!(saved).fingerprint
    end
  end

  backend_test "steps of AdamW on the gradients lower the loss, and the same steps give the same bits", %{
    backend: backend
  } do
    train = fn ->
      model = model(backend)
      frames = frames(4, 10)
      targets = uniform(9, {4, 10, 7}, -1.0, 1.0)
      start = Policy.weights!(model)

      Enum.reduce(1..15, {[], start, AdamW.new(start, learning_rate: 1.0e-2)}, fn _,
                                                                                  {losses, weights, optimiser} ->
        %{loss: loss, d_outs: d_outs} = Loss.mean_squared_error(Policy.forward!(model, frames), targets)
        {weights, optimiser, _} = AdamW.step(optimiser, weights, Policy.grad!(model, frames, d_outs))
        Policy.update!(model, weights)
        {[loss | losses], weights, optimiser}
      end)
    end

    {[last | _] = losses, weights, _} = train.()
    assert last < 0.6 * List.last(losses)
    assert {^losses, ^weights, _} = train.()
  end
end
