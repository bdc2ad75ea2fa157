defmodule ExPhil.Native.Trainer.ResidentTest do
  # A step of training stays where the policy is: it is what forward, loss, gradient and AdamW give together, the policy plays what was
  # trained, and what cannot be done changes nothing.
  use ExUnit.Case, async: true

  alias ExPhil.Native.{AdamW, Error, Loss, Policy, Safetensors, Tensor, Trainer}
  alias ExPhil.Native.Trainer.Resident

  @moduletag :tmp_dir
  @heads [x: 3, jump: {2, :binary}]
  @trunks [:mamba1, :gru, :lstm, :min_gru, :min_lstm]
  @options [learning_rate: 0.02, clip_norm: 0.05, seed: 4]

  defp policy(trunk, backend \\ :host),
    do: Policy.init!(trunk, d_input: 2, heads: @heads, d_model: 6, layers: 2, seed: 1, backend: backend)

  defp sequence(count, seed) do
    {values, _} = Enum.map_reduce(1..count, :rand.seed_s(:exsss, seed), fn _, r -> :rand.uniform_s(3, r) end)
    frames = Tensor.from_list(for v <- values, do: [v / 3, 1.0])
    {frames, Tensor.from_list(for(v <- [1 | Enum.drop(values, -1)], do: [v - 1, rem(v, 2), div(v, 2)]), :s32)}
  end

  # Of three lengths, one with a mask and a target that is left out.
  defp sequences do
    [first, second, {frames, {:s32, shape, targets}}] =
      for {n, seed} <- [{9, 1}, {5, 2}, {7, 3}], do: sequence(n, seed)

    <<_::32, rest::binary>> = targets
    mask = Tensor.from_list([1, 1, 0, 1, 1, 1, 0], :s32)
    [first, second, {frames, {:s32, shape, <<-1::32-little>> <> rest}, mask}]
  end

  defp error(result), do: with({:error, %Error{} = error} <- result, do: error)

  # The same steps by the calls of a loop of one's own.
  defp composed(policy, steps) do
    weights = Policy.weights!(policy)
    groups = Policy.info!(policy).groups
    data = Trainer.Data.read!(sequences(), "sequences", Trainer.new!(policy, @options).options)
    {frames, targets, mask} = data |> Trainer.Data.all() |> Trainer.Data.batch(data)

    Enum.map_reduce(1..steps, {weights, AdamW.new(weights, Keyword.delete(@options, :seed))}, fn _,
                                                                                                 {weights,
                                                                                                  optimiser} ->
      loss = Loss.cross_entropy(Policy.forward!(policy, frames), targets, groups, mask: mask)
      gradients = Policy.grad!(policy, frames, loss.d_outs)
      {weights, optimiser, norm} = AdamW.step(optimiser, weights, gradients)
      Policy.update!(policy, weights)
      {{loss.loss, norm}, {weights, optimiser}}
    end)
  end

  defp steps(trainer, count),
    do: Enum.reduce(1..count, trainer, fn _, trainer -> Trainer.step!(trainer, sequences()) end)

  test "a step has the bits of forward, loss, gradient and AdamW" do
    for trunk <- @trunks do
      {numbers, {weights, optimiser}} = composed(policy(trunk), 4)
      trained = steps(Trainer.new!(policy(trunk), @options), 4)

      assert {trunk, for({_, loss, _, norm} <- Enum.reverse(trained.history), do: {loss, norm})} ==
               {trunk, numbers}

      assert Resident.values!(trained) == %{step: 4, weights: weights, m: optimiser.m, v: optimiser.v}
    end
  end

  @tag :gpu
  test "on a GPU a step is that of the calls on the CPU" do
    for trunk <- @trunks do
      {numbers, {weights, _}} = composed(policy(trunk), 4)
      trained = steps(Trainer.new!(policy(trunk, :cuda), @options), 4)

      for {{loss, norm}, {_, made, _, made_norm}} <- Enum.zip(numbers, Enum.reverse(trained.history)) do
        assert_in_delta made, loss, 1.0e-4 * loss
        assert_in_delta made_norm, norm, 1.0e-3 * norm
      end

      made = Policy.weights!(trained.policy)

      for {name, {:f32, _, binary}} <- weights, {:f32, _, of_gpu} = made[name] do
        for {<<a::float-32-little>>, <<b::float-32-little>>} <- Enum.zip(floats(binary), floats(of_gpu)) do
          # AdamW turns a gradient near 0 into a whole step of either sign.
          assert_in_delta a, b, 0.01, "#{trunk} #{name}"
        end
      end
    end
  end

  defp floats(binary), do: for(<<part::binary-4 <- binary>>, do: part)

  for backend <- [:host, :cuda] do
    if backend == :cuda, do: @tag(:gpu)

    test "a trained policy plays what a saved one plays, and its sessions end with each step: #{backend}", %{
      tmp_dir: folder
    } do
      backend = unquote(backend)
      path = Path.join(folder, "policy.safetensors")
      obs = <<0.5::float-32-little, 1.0::float-32-little>>
      frames = {:f32, {1, 4, 2}, :binary.copy(obs, 4)}

      for trunk <- @trunks do
        trainer = steps(Trainer.new!(policy(trunk, backend), @options), 1)
        before = Policy.new_session!(trainer.policy)
        trainer = steps(trainer, 2)
        assert error(Policy.step(before, obs)).kind == :mismatch
        # Forward and gradient are those of the weights where they are.
        outs = Policy.forward!(trainer.policy, frames)
        gradients = Policy.grad!(trainer.policy, frames, outs)
        weights = Policy.weights!(trainer.policy)
        :ok = Policy.save(trainer.policy, path)
        loaded = Policy.load!(path, backend: backend)
        assert Policy.weights!(loaded) == weights
        assert Policy.forward!(loaded, frames) == outs
        assert Policy.grad!(loaded, frames, outs) == gradients
        assert Policy.info!(trainer.policy).fingerprint == Policy.info!(loaded).fingerprint
        [played, expected] = for policy <- [trainer.policy, loaded], do: Policy.new_session!(policy)
        for _ <- 1..3, do: assert(Policy.step!(played, obs) == Policy.step!(expected, obs))
        assert Policy.window!(trainer.policy, frames) == Policy.window!(loaded, frames)
        # The session lives until the next step.
        state = Policy.export_state!(played)
        assert Policy.import_state!(Policy.new_session!(loaded), state)
        trainer = steps(trainer, 1)
        assert error(Policy.step(played, obs)).kind == :mismatch
        assert Policy.weights!(trainer.policy) != weights
      end
    end
  end

  test "an older trainer is refused, and the newest goes on", %{tmp_dir: folder} do
    path = Path.join(folder, "run.safetensors")
    old = steps(Trainer.new!(policy(:gru), @options), 1)
    new = steps(old, 1)

    for result <- [
          Trainer.step(old, sequences()),
          Trainer.fit(old, sequences(), steps: 1, progress: false),
          Trainer.save(old, path)
        ] do
      assert %{kind: :mismatch, argument: "trainer", message: message} = error(result)
      assert message =~ "the trainer has taken 1 steps, and its policy 2"
    end

    refute File.exists?(path)
    assert Resident.values!(steps(new, 1)) == Resident.values!(steps(Trainer.new!(policy(:gru), @options), 3))
  end

  test "a step that is refused changes nothing, and the next one has the bits that it would have had" do
    expected = steps(Trainer.new!(policy(:mamba1), @options), 2)
    trainer = steps(Trainer.new!(policy(:mamba1), @options), 1)
    values = Resident.values!(trainer)
    [{{:f32, shape, frames}, targets} | _] = sequences()
    nan = <<0, 0, 192, 127>> <> binary_part(frames, 4, byte_size(frames) - 4)
    {:s32, columns, numbers} = targets
    wrong = {:s32, columns, <<9::32-little>> <> binary_part(numbers, 4, byte_size(numbers) - 4)}
    assert error(Trainer.step(trainer, [{{:f32, shape, nan}, targets}])).argument == "outs"
    assert error(Trainer.step(trainer, [{{:f32, shape, frames}, wrong}])).argument == "targets"
    huge = %{trainer | options: put_in(trainer.options, [:schedule, :rate], 3.0e38)}
    assert error(Trainer.step(huge, sequences())).argument == ":learning_rate"
    assert Resident.values!(trainer) == values
    assert Resident.values!(steps(trainer, 1)) == Resident.values!(expected)
  end

  test "weights that are put into the policy in between are those of its next step no more" do
    start = Policy.weights!(policy(:gru))
    trainer = steps(Trainer.new!(policy(:gru), @options), 1)
    Policy.update!(trainer.policy, start)
    assert Policy.weights!(trainer.policy) == start
    trainer = steps(trainer, 1)

    assert Policy.weights!(trainer.policy) ==
             Resident.values!(steps(Trainer.new!(policy(:gru), @options), 2)).weights
  end

  test "processes that use the policy while it is trained find the weights of one step" do
    policy = policy(:gru)
    frames = {:f32, {1, 3, 2}, :binary.copy(<<0.5::float-32-little>>, 6)}
    others = policy(:gru)

    first = {Trainer.new!(others, @options), [Policy.forward!(others, frames)]}

    {_, answers} =
      Enum.reduce(1..20, first, fn _, {trainer, answers} ->
        trainer = steps(trainer, 1)
        {trainer, [Policy.forward!(others, frames) | answers]}
      end)

    stop = :atomics.new(1, [])

    readers =
      for read <- [
            &Policy.forward!(&1, frames),
            fn policy -> Policy.window!(policy, frames) && Policy.forward!(policy, frames) end
          ] do
        Task.async(fn ->
          fn -> read.(policy) end
          |> Stream.repeatedly()
          |> Enum.reduce_while([], fn answer, seen ->
            {if(:atomics.get(stop, 1) == 1, do: :halt, else: :cont), [answer | seen]}
          end)
        end)
      end

    steps(Trainer.new!(policy, @options), 20)
    :atomics.put(stop, 1, 1)
    for answer <- readers |> Task.await_many(:infinity) |> List.flatten(), do: assert(answer in answers)
  end

  test "means that are not finite are refused when they are read", %{tmp_dir: folder} do
    path = Path.join(folder, "run.safetensors")
    trainer = steps(Trainer.new!(policy(:gru), @options), 1)
    :ok = Trainer.save(trainer, path)
    tensors = Safetensors.read!(path)
    {:ok, metadata} = Safetensors.metadata(path)
    {name, {:f32, shape, binary}} = Enum.find(tensors, fn {name, _} -> String.starts_with?(name, "m/") end)
    nan = {:f32, shape, <<0, 0, 192, 127>> <> binary_part(binary, 4, byte_size(binary) - 4)}
    :ok = Safetensors.write(path, Map.put(tensors, name, nan), metadata)
    assert %{argument: "optimiser", message: message} = error(Trainer.restore(trainer, path))
    assert message =~ String.replace_prefix(name, "m/", "")
  end

  test "a policy of rounded weights is not trained", %{tmp_dir: folder} do
    path = Path.join(folder, "policy.safetensors")
    :ok = Policy.save(policy(:mamba1), path)
    rounded = Policy.load!(path, backend: :host, precision: :bf16)
    assert error(Trainer.new(rounded, [])).argument == ":precision"
  end
end
