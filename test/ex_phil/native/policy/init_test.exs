defmodule ExPhil.Native.Policy.InitTest do
  # From nothing, from a map of weights, and to a file.
  use ExPhil.Native.TestSupport.BackendCase, async: true

  alias ExPhil.Native.{Loss, Policy, Safetensors, Tensor, Trainer}

  @moduletag :tmp_dir
  @sizes [d_input: 5, d_output: 14, d_model: 12, layers: 2]

  defp frames, do: {:f32, {2, 9, 5}, for(i <- 1..90, into: <<>>, do: <<:math.sin(i)::float-32-little>>)}
  defp error({:error, %Error{} = error}), do: error

  backend_test "the same sizes and seed are the same bits, on every backend", %{backend: backend} do
    policy = Policy.init!(:mamba1, @sizes ++ [seed: 5, backend: backend])
    weights = Policy.weights!(policy)
    assert weights == Policy.weights!(Policy.init!(:mamba1, @sizes ++ [seed: 5, backend: :host]))
    assert weights != Policy.weights!(Policy.init!(:mamba1, @sizes ++ [seed: 6, backend: :host]))
    info = Policy.info!(policy)
    assert %{d_inner: 24, d_state: 16, d_conv: 4, dt_rank: 1, groups: [], trunk: :mamba1, n_layer: 2} = info
    assert info.fingerprint == Policy.info!(Policy.load!(weights, backend: backend)).fingerprint

    # The number is of every machine.
    {:f32, {14, 12}, <<first::float-32-little, _::binary>>} = weights["head.weight"]
    assert_in_delta first, -0.026304975152015686, 1.0e-7
  end

  backend_test "a policy plays as it is saved and loaded, updated weights included", %{
    backend: backend,
    tmp_dir: folder
  } do
    heads = [stick: 9, buttons: {5, :binary}]

    options = [
      d_input: 5,
      heads: heads,
      d_model: 12,
      layers: 1,
      window: 30,
      norm_epsilon: 1.0e-4,
      backend: backend
    ]

    policy = Policy.init!(:mamba1, options)
    outs = Policy.forward!(policy, frames())

    doubled =
      Map.new(Policy.weights!(policy), fn {name, {:f32, shape, binary}} ->
        {name, {:f32, shape, twice(binary)}}
      end)

    path = Path.join(folder, "policy.safetensors")
    assert Policy.update!(policy, doubled) && Policy.save(policy, path) == :ok
    loaded = Policy.load!(path, backend: backend)
    assert Policy.weights!(loaded) == doubled
    assert Policy.forward!(loaded, frames()) == Policy.forward!(policy, frames())
    assert Policy.forward!(loaded, frames()) != outs
    [saved, read] = for policy <- [policy, loaded], do: Map.drop(Policy.info!(policy), [:resident_bytes])
    assert saved == read
    assert read.groups == [{:stick, 0..8}, {:buttons, 9..13, :binary}]
    assert read.window == 30
    assert {:s32, {2, 9, 6}, _} = Loss.argmax(Policy.forward!(loaded, frames()), read.groups)
    # A map with the same heads, and one without.
    assert Policy.info!(Policy.load!(doubled, heads: heads, backend: backend)).groups == read.groups
    assert Policy.info!(Policy.load!(doubled, backend: backend)).groups == []
    assert Policy.save!(loaded, path) == :ok
  end

  backend_test "gated policies: the same sizes and seed are the same bits, which train, are saved, and play again",
               %{
                 backend: backend,
                 tmp_dir: folder
               } do
    for trunk <- [:gru, :lstm, :min_gru, :min_lstm, :gated_deltanet] do
      sizes = [d_input: 5, heads: [x: 3, jump: {2, :binary}], d_model: 8, layers: 2, window: 20]
      init = &Policy.init!(trunk, sizes ++ [seed: &1, backend: &2])
      policy = init.(3, backend)
      assert %{trunk: ^trunk, d_model: 8, n_layer: 2, d_output: 5, window: 20} = info = Policy.info!(policy)
      assert info.groups == [{:x, 0..2}, {:jump, 3..4, :binary}]
      assert Policy.weights!(policy) == Policy.weights!(init.(3, :host))
      assert info.fingerprint == Policy.info!(init.(3, :host)).fingerprint
      assert Policy.weights!(policy) != Policy.weights!(init.(4, :host))

      path = Path.join(folder, "#{trunk}.safetensors")
      :ok = Policy.save(policy, path)
      loaded = Policy.load!(path, backend: backend)
      assert Policy.weights!(loaded) == Policy.weights!(policy)
      # From the state that the key gives.
      assert Policy.window!(loaded, frames()) == Policy.window!(policy, frames())
      [saved, read] = for policy <- [policy, loaded], do: Map.drop(Policy.info!(policy), [:resident_bytes])
      assert saved == read
    end
  end

  test "the number of heads of a gated DeltaNet is saved with it", %{tmp_dir: folder} do
    policy = Policy.init!(:gated_deltanet, @sizes ++ [num_heads: 2, backend: :host])
    path = Path.join(folder, "heads.safetensors")
    :ok = Policy.save(policy, path)
    loaded = Policy.load!(path, backend: :host)
    assert %{num_heads: 2, trunk: :gated_deltanet} = Policy.info!(loaded)
    assert Policy.forward!(loaded, frames()) == Policy.forward!(policy, frames())

    assert error(Policy.init(:gated_deltanet, @sizes ++ [num_heads: 5, backend: :host])).argument ==
             ":num_heads"
  end

  test "without a frame a forward pass gives a new agent's state, or the one that it got" do
    for trunk <- [:mamba1, :gru, :lstm, :min_gru, :gated_deltanet] do
      policy = Policy.init!(trunk, @sizes ++ [backend: :host])
      none = {:f32, {2, 0, 5}, <<>>}
      assert {{:f32, {2, 0, 14}, <<>>}, first} = Policy.forward!(policy, none, return_state: true)
      {outs, last} = Policy.forward!(policy, frames(), return_state: true)
      assert Policy.forward!(policy, frames(), initial_state: first) == outs
      assert {_, ^last} = Policy.forward!(policy, none, initial_state: last, return_state: true)

      zeros? =
        Enum.all?(first, fn {_, {:f32, _, binary}} -> binary == :binary.copy(<<0>>, byte_size(binary)) end)

      assert zeros? == trunk not in [:gru, :lstm]
      assert error(Policy.grad(policy, none, {:f32, {2, 0, 14}, <<>>})).argument == "frames"
    end
  end

  test "gated policies learn" do
    # To remember: the last sign that was not 0.
    sequences =
      for seed <- 1..16 do
        {signs, _} = Enum.map_reduce(1..12, :rand.seed_s(:exsss, seed), fn _, r -> :rand.uniform_s(4, r) end)
        frames = for sign <- signs, do: [0.5, 1.0, -0.5, 0.0, Enum.at([-1.0, 1.0, 0.0, 0.0], sign - 1)]
        last = Enum.scan([2 | signs], fn sign, last -> if sign < 3, do: sign, else: last end)
        {Tensor.from_list(frames), Tensor.from_list(for(sign <- tl(last), do: [sign - 1]), :s32)}
      end

    for trunk <- [:gru, :lstm, :min_gru, :min_lstm, :gated_deltanet] do
      policy = Policy.init!(trunk, d_input: 5, heads: [sign: 2], d_model: 12, layers: 2, backend: :host)
      trainer = Trainer.new!(policy, learning_rate: 0.01, batch: 16, clip_norm: 1.0)
      trainer = Trainer.fit!(trainer, sequences, steps: 150, progress: false)
      %{loss: loss, correct: %{sign: correct}} = Trainer.evaluate!(trainer, sequences)
      assert {trunk, true} == {trunk, loss < 0.2 and correct > 0.9}
    end
  end

  test "an epsilon of the norms that is another trunk's default is saved", %{tmp_dir: folder} do
    path = Path.join(folder, "policy.safetensors")

    for {trunk, epsilon} <- [gru: 1.0e-5, min_gru: 1.0e-6, mamba1: 1.0e-6, gru: 1.0e-6] do
      policy = Policy.init!(trunk, @sizes ++ [norm_epsilon: epsilon, backend: :host])
      :ok = Policy.save(policy, path)

      assert Policy.info!(Policy.load!(path, backend: :host)).norm_epsilon ==
               Policy.info!(policy).norm_epsilon
    end
  end

  defp twice(binary), do: for(<<v::float-32-little <- binary>>, into: <<>>, do: <<2 * v::float-32-little>>)

  test "a name that the VM has not as an atom stays a string", %{tmp_dir: folder} do
    weights = Policy.weights!(Policy.init!(:mamba1, @sizes ++ [backend: :host]))
    path = Path.join(folder, "policy.safetensors")
    name = "exphil_unknown_name_" <> "of_a_file"
    :ok = Safetensors.write(path, weights, %{"exphil_native.heads" => name <> ":14"})
    policy = Policy.load!(path, backend: :host)
    assert Policy.info!(policy).groups == [{name, 0..13}]

    assert %{losses: losses} =
             Loss.cross_entropy(
               {:f32, {1, 14}, <<0::448>>},
               {:s32, {1, 1}, <<0::32>>},
               Policy.info!(policy).groups
             )

    assert Map.keys(losses) == [name]
    :ok = Policy.save(policy, path)
    assert Policy.info!(Policy.load!(path, backend: :host)).groups == [{name, 0..13}]
  end

  test "what is wrong is an error that names it" do
    without = &Keyword.delete(@sizes, &1)

    for {argument, options} <- [
          {":d_input", without.(:d_input)},
          {":d_output", without.(:d_output)},
          {":d_model", without.(:d_model)},
          {":layers", without.(:layers)},
          {":layers", [layers: 0] ++ without.(:layers)},
          {":d_model", [d_model: 1.5] ++ without.(:d_model)},
          {":headdim", [headdim: 4] ++ @sizes},
          {":d_conv", [d_conv: 17] ++ @sizes},
          {":d_state", [d_state: 257] ++ @sizes},
          {":expand", [expand: 16_777_216] ++ @sizes},
          {":seed", [seed: :a] ++ @sizes},
          {":heads", [heads: []] ++ @sizes},
          {":heads", [heads: [x: 0]] ++ @sizes},
          {":heads", [heads: [{"x", 14}]] ++ @sizes},
          {":heads", [heads: [x: 7, x: 7]] ++ @sizes},
          {":heads", [heads: ["a b": 14]] ++ @sizes},
          {":d_output", [heads: [x: 7]] ++ @sizes},
          {":backend", [backend: :tpu] ++ @sizes},
          {":max_sessions", [max_sessions: 0] ++ @sizes},
          {":norm_epsilon", [norm_epsilon: -1] ++ @sizes},
          {"options", :none},
          {"options", [{"d_input", 5}]}
        ] do
      assert {argument, options} == {error(Policy.init(:mamba1, options)).argument, options}
    end

    # Options of load/2 that a new policy has not, and a name of neither.
    for {name, value} <- [precision: :bf16, states: :f16, gather: true, check_finite: true, dt: :mean] do
      assert %{kind: :invalid_argument} = error = error(Policy.init(:gru, [{name, value} | @sizes]))
      assert error.argument == inspect(name)
      assert error.message =~ "unknown option #{inspect(name)} of Policy.init/2; Policy.load/2 takes it"
    end

    assert error(Policy.init(:gru, [widht: 4] ++ @sizes)).message =~ "unknown option :widht; known: :heads"

    for trunk <- [:gru, :lstm, :min_gru, :min_lstm],
        {argument, options} <- [{":d_model", without.(:d_model)}, {":d_state", [d_state: 4] ++ @sizes}],
        do: assert({argument, trunk} == {error(Policy.init(trunk, options)).argument, trunk})

    assert error(Policy.init(:perceptron, @sizes)).argument == "trunk"
    assert error(Policy.init("mamba1", @sizes)).argument == "trunk"
    assert error(Policy.init(:mamba1, [d_model: 1_048_576] ++ without.(:d_model))).kind == :limit_exceeded
  end

  test "weights that are no policy are errors that name them", %{tmp_dir: folder} do
    policy = Policy.init!(:mamba1, @sizes ++ [backend: :host])
    weights = Policy.weights!(policy)
    load = fn weights -> error(Policy.load(weights, backend: :host)) end

    assert %{argument: "weights", kind: :invalid_checkpoint, message: message} =
             load.(Map.delete(weights, "head.bias"))

    assert message =~ ~s("head.bias" is missing from the weights)
    assert %{argument: "weights"} = load.(Map.put(weights, "tail", {:f32, {1}, <<0::32>>}))
    assert %{argument: "weights"} = load.(%{weights | "head.bias" => {:f32, {13}, <<0::416>>}})

    assert %{argument: "weights"} =
             load.(%{weights | "head.bias" => {:f32, {14}, :binary.copy(<<0, 0, 192, 127>>, 14)}})

    assert %{argument: "weights"} = load.(Map.put(weights, :head, weights["head.bias"]))
    assert %{argument: "weights"} = load.(%{})
    assert %{argument: "head.bias"} = load.(%{weights | "head.bias" => [0.0]})
    assert %{argument: ":heads"} = error(Policy.load(weights, heads: [x: :y], backend: :host))

    for {heads, got} <- [{[x: 13], "got 13"}, {[a: 60], "got 60"}, {[a: 9, b: {9, :binary}], "got 18"}] do
      assert %{kind: :invalid_argument, argument: ":heads"} =
               error = error(Policy.load(weights, heads: heads, backend: :host))

      assert error.message =~ ":heads must have the policy's 14 outputs together, " <> got
    end

    many = for i <- 1..257, do: {:"head_#{i}", 1}

    assert %{kind: :limit_exceeded, argument: ":heads"} =
             error(Policy.load(weights, heads: many, backend: :host))

    assert %{argument: ":heads", message: message} =
             error(Policy.load(Path.join(folder, "policy"), heads: [x: 14]))

    assert message =~ "names the outputs of a map of tensors; a file has its own"
    assert %{kind: :file_error} = error(Policy.save(policy, Path.join(folder, "none/policy")))
    assert %{argument: "path"} = error(Policy.save(policy, 5))
    assert %{argument: "policy"} = error(Policy.save(:none, "policy"))
    half = Policy.load!(weights, precision: :bf16, backend: :host)
    assert %{kind: :unsupported} = error(Policy.save(half, Path.join(folder, "policy")))
  end
end
