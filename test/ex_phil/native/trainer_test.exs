defmodule ExPhil.Native.TrainerTest do
  use ExUnit.Case, async: true
  doctest ExPhil.Native.Trainer

  import ExUnit.CaptureIO
  alias ExPhil.Native.{AdamW, Error, Loss, Policy, Safetensors, Tensor, Trainer}
  alias ExPhil.Native.Trainer.Resident

  @moduletag :tmp_dir
  @heads [x: 3, jump: {2, :binary}]
  @options [learning_rate: 0.02, schedule: {:cosine, 40}, warm_up: 5, clip_norm: 0.5, batch: 3, seed: 4]

  defp policy(seed \\ 1),
    do:
      Policy.init!(:mamba1,
        d_input: 2,
        heads: @heads,
        d_model: 8,
        layers: 2,
        d_state: 4,
        seed: seed,
        backend: :host
      )

  # The target is whether the first number has been above 0.5 in the last three frames: it takes a memory.
  defp sequence(count, seed) do
    {values, _} =
      Enum.map_reduce(1..count, :rand.seed_s(:exsss, seed), fn _, random -> :rand.uniform_s(random) end)

    seen =
      [0.0, 0.0 | values]
      |> Enum.chunk_every(3, 1, :discard)
      |> Enum.map(&if(Enum.max(&1) > 0.5, do: 1, else: 0))

    frames = Tensor.from_list(Enum.map(values, &[&1, 1.0]))
    {frames, Tensor.from_list(Enum.map(seen, &[2 * &1, &1, 1 - &1]), :s32)}
  end

  defp sequences(lengths), do: for({count, seed} <- Enum.with_index(lengths), do: sequence(count, seed))
  defp fit!(trainer, sequences, options), do: Trainer.fit!(trainer, sequences, [progress: false] ++ options)
  defp error(result), do: with({:error, %Error{} = error} <- result, do: error)

  test "a run learns, and its history says so" do
    data = sequences([20, 33, 7, 12, 28])

    trainer =
      fit!(Trainer.new!(policy(), @options), data,
        steps: 60,
        held_out: sequences([40, 11]),
        evaluate_every: 25
      )

    assert Trainer.steps(trainer) == 60
    assert Enum.map(trainer.history, &elem(&1, 0)) == Enum.to_list(60..1//-1)
    assert Enum.map(trainer.evaluations, &elem(&1, 0)) == [60, 50, 25]
    losses = Enum.map(trainer.history, &elem(&1, 1))
    assert Enum.sum(Enum.take(losses, 10)) < 0.5 * Enum.sum(Enum.take(losses, -10))
    held_out = Trainer.evaluate!(trainer, sequences([40, 11]))
    assert held_out.loss == trainer.evaluations |> hd() |> elem(1)
    assert held_out.correct.x > 0.85 and held_out.correct.jump > 0.85
  end

  test "20 steps are 10, a file, and 10 more, bit for bit", %{tmp_dir: folder} do
    data = sequences([20, 33, 7, 12])
    path = Path.join(folder, "run.safetensors")
    whole = fit!(Trainer.new!(policy(), @options), data, steps: 20, held_out: data, evaluate_every: 5)

    half =
      fit!(Trainer.new!(policy(), @options), data,
        steps: 10,
        held_out: data,
        evaluate_every: 5,
        checkpoint: path
      )

    # Another policy of the same sizes: everything comes from the file.
    {:ok, again} = Trainer.restore(Trainer.new!(policy(9), @options), path)
    assert again.history == half.history and again.evaluations == half.evaluations
    assert Resident.values!(again) == Resident.values!(half)
    assert Policy.weights!(again.policy) == Policy.weights!(half.policy)
    rest = fit!(again, data, steps: 10, held_out: data, evaluate_every: 5)
    assert Policy.weights!(rest.policy) == Policy.weights!(whole.policy)
    assert Resident.values!(rest) == Resident.values!(whole)
    assert Trainer.csv(rest) == Trainer.csv(whole)
    assert Policy.info!(rest.policy).fingerprint == Policy.info!(whole.policy).fingerprint
    assert File.ls!(folder) == ["run.safetensors"]
  end

  test "a step is forward, loss, gradient and AdamW" do
    data = sequences([9, 9])
    trainer = Trainer.new!(policy(), learning_rate: 0.01, clip_norm: 1.0)
    stepped = Trainer.step!(trainer, data)

    model = policy()
    frames = {:f32, {2, 9, 2}, for({{_, _, binary}, _} <- data, into: <<>>, do: binary)}
    targets = {:s32, {2, 9, 3}, for({_, {_, _, binary}} <- data, into: <<>>, do: binary)}
    loss = Loss.cross_entropy(Policy.forward!(model, frames), targets, Policy.info!(model).groups)
    weights = Policy.weights!(model)
    optimiser = AdamW.new(weights, learning_rate: 0.01, clip_norm: 1.0)
    {expected, _, norm} = AdamW.step(optimiser, weights, Policy.grad!(model, frames, loss.d_outs))
    assert Policy.weights!(stepped.policy) == expected
    assert stepped.history == [{1, loss.loss, 0.01, norm}]
  end

  test "padding and masked frames count for nothing" do
    [long, short] = sequences([30, 11])
    batch = Trainer.new!(policy(), []) |> Trainer.step!([long, short])
    # The mean over 41 frames is the weighted mean of both.
    [a, b] = for sequence <- [long, short], do: Trainer.new!(policy(), []) |> Trainer.step!([sequence])
    loss = fn trainer -> trainer.history |> hd() |> elem(1) end
    assert_in_delta loss.(batch), (30 * loss.(a) + 11 * loss.(b)) / 41, 1.0e-6

    # A sequence whose last frames are masked is the shorter one.
    {{:f32, {30, 2}, frames}, {:s32, {30, 3}, targets}} = long
    first = {{:f32, {20, 2}, binary_part(frames, 0, 160)}, {:s32, {20, 3}, binary_part(targets, 0, 240)}}
    mask = Tensor.from_list(List.duplicate(1, 20) ++ List.duplicate(0, 10), :s32)
    masked = Tuple.insert_at(long, tuple_size(long), mask)
    [a, b] = for sequence <- [first, masked], do: Trainer.new!(policy(), []) |> Trainer.evaluate!([sequence])
    assert_in_delta a.loss, b.loss, 1.0e-9
    assert a.correct == b.correct
    [a, b] = for sequence <- [first, masked], do: Trainer.new!(policy(), []) |> Trainer.step!([sequence])
    assert_in_delta loss.(a), loss.(b), 1.0e-9
    refute_in_delta loss.(a), loss.(Trainer.new!(policy(), []) |> Trainer.step!([long])), 1.0e-6
  end

  test "an evaluation is the same however its sequences are batched, and takes no step" do
    data = sequences([20, 33, 7, 12, 28])
    policy = policy()
    before = Policy.weights!(policy)
    [one, all] = for batch <- [1, 8], do: Trainer.evaluate!(Trainer.new!(policy, batch: batch), data)
    assert one == all
    assert Policy.weights!(policy) == before
    # With :seq they are cut: other answers.
    assert Trainer.evaluate!(Trainer.new!(policy, seq: 5), data).loss != all.loss
    assert Trainer.evaluate!(Trainer.new!(policy, seq: 33), data) == all
  end

  test "regression", %{tmp_dir: folder} do
    policy = Policy.init!(:mamba1, d_input: 1, d_output: 1, d_model: 8, layers: 1, seed: 2, backend: :host)
    data = for s <- 1..4, do: sum(s)
    trainer = Trainer.new!(policy, loss: :mean_squared_error, learning_rate: 0.02)
    before = Trainer.evaluate!(trainer, data)
    assert Map.keys(before) == [:loss]
    trainer = fit!(trainer, data, steps: 80, csv: Path.join(folder, "loss.csv"))
    assert Trainer.evaluate!(trainer, data).loss < 0.1 * before.loss

    ["step,loss,learning_rate,norm,held_out" | lines] =
      File.read!(Path.join(folder, "loss.csv")) |> String.split("\n", trim: true)

    assert length(lines) == 80
    assert "80," <> _ = List.last(lines)
    assert error(Trainer.new(policy, [])).argument == ":loss"
  end

  # The mean of this frame and the last one.
  defp sum(seed) do
    {values, _} =
      Enum.map_reduce(1..12, :rand.seed_s(:exsss, seed), fn _, random -> :rand.uniform_s(random) end)

    sums = Enum.zip_with(values, [0.0 | values], &[(&1 + &2) / 2])
    {Tensor.from_list(Enum.map(values, &[&1])), Tensor.from_list(sums)}
  end

  test "a line of progress" do
    output =
      capture_io(fn ->
        Trainer.fit!(Trainer.new!(policy(), batch: 1), sequences([5]), steps: 3, held_out: sequences([4]))
      end)

    assert output =~
             ~r/\r\[#{String.duplicate("#", 30)}\] 3\/3  loss \d\.\d{4}  held out \d\.\d{4}  rate 1\.0e-03  \d+\.\d steps\/s \n/

    assert capture_io(fn -> fit!(Trainer.new!(policy(), batch: 1), sequences([5]), steps: 1) end) == ""
  end

  @tag :gnuplot
  test "the curve as SVG", %{tmp_dir: folder} do
    path = Path.join(folder, "loss.svg")

    trainer =
      fit!(Trainer.new!(policy(), @options), sequences([9]), steps: 3, held_out: sequences([8]), svg: path)

    assert File.read!(path) =~ ~r/<svg.*training loss.*held out.*<\/svg>/s
    assert Trainer.svg!(trainer) == File.read!(path)
  end

  test "what is wrong is an error that names it, and changes nothing", %{tmp_dir: folder} do
    policy = policy()
    weights = Policy.weights!(policy)
    trainer = Trainer.new!(policy, [])
    [{frames, targets} = good] = sequences([5])

    for {argument, options} <- [
          {":batch", [batch: 0]},
          {":seq", [seq: -1]},
          {":seed", [seed: 1.0]},
          {":schedule", [schedule: :linear]},
          {":schedule", [schedule: {:cosine, 0}]},
          {":warm_up", [warm_up: -1]},
          {":least_rate", [least_rate: 0.1]},
          {":least_rate", [least_rate: 1.0, schedule: {:cosine, 5}]},
          {":learning_rate", [learning_rate: 0]},
          {":clip_norm", [clip_norm: -1]},
          {":loss", [loss: :hinge]},
          {"groups", [loss: {:cross_entropy, :x}]},
          {":steps", [steps: 3]}
        ],
        do: assert({argument, options} == {error(Trainer.new(policy, options)).argument, options})

    for bad <- [
          [],
          :data,
          [good, :other],
          [{frames, frames}],
          [{targets, targets}],
          [{frames, {:s32, {4, 3}, <<0::384>>}}],
          [{frames, {:s32, {5, 3}, <<0::32>>}}],
          [{frames, targets, {:s32, {4}, <<0::128>>}}],
          [{{:f32, {0, 2}, <<>>}, {:s32, {0, 3}, <<>>}}],
          [{frames, {:s32, {5, 3}, :binary.copy(<<7::32-little>>, 15)}}]
        ] do
      assert error(Trainer.step(trainer, bad)).argument in ["sequences", "targets"]
      assert error(Trainer.evaluate(trainer, bad)).argument in ["sequences", "targets"]
      assert error(Trainer.fit(trainer, bad, steps: 1, progress: false)).argument in ["sequences", "targets"]
    end

    for {argument, options} <- [
          {":steps", []},
          {":steps", [steps: -1]},
          {":progress", [steps: 1, progress: 1]},
          {":held_out", [steps: 1, held_out: []]},
          {":csv", [steps: 1, csv: 5]},
          {":checkpoint", [steps: 1, checkpoint: ""]},
          {":evaluate_every", [steps: 1, evaluate_every: 0]},
          {":batch", [steps: 1, batch: 4]}
        ],
        do: assert({argument, options} == {error(Trainer.fit(trainer, [good], options)).argument, options})

    assert error(Trainer.new(:policy)).argument == "policy"

    for call <- [&Trainer.step/2, &Trainer.evaluate/2, &Trainer.fit/2],
        do: assert(error(call.(:no, [good])).argument == "trainer")

    assert error(Trainer.restore(trainer, Path.join(folder, "none"))).kind == :file_error
    assert error(Trainer.svg(trainer)).kind == :unsupported
    assert_raise Error, fn -> Trainer.step!(trainer, []) end
    assert Policy.weights!(policy) == weights
  end

  test "a damaged or foreign file is an error and changes nothing", %{tmp_dir: folder} do
    trainer = fit!(Trainer.new!(policy(), @options), sequences([9]), steps: 2)
    path = Path.join(folder, "run.safetensors")
    Trainer.save!(trainer, path)
    {:ok, tensors} = Safetensors.read(path)
    {:ok, metadata} = Safetensors.metadata(path)
    fresh = Trainer.new!(policy(3), @options)
    weights = Policy.weights!(fresh.policy)

    for {tensors, metadata, says} <- [
          {tensors, %{}, "is not a file of Trainer.save/2"},
          {tensors, %{metadata | "exphil_native.trainer" => "2"}, "version"},
          {tensors, %{metadata | "exphil_native.steps" => "two"}, "number of steps"},
          {Map.delete(tensors, "m/head.bias"), metadata, "m/head.bias"},
          {%{tensors | "v/head.bias" => {:f32, {4}, <<0::128>>}}, metadata, "v/head.bias"},
          {Map.put(tensors, "m/other", {:f32, {1}, <<0::32>>}), metadata, "more tensors m/"},
          {Map.delete(tensors, "history"), metadata, "history"},
          {%{tensors | "weights/head.bias" => {:f32, {5}, <<0::128, 255, 255, 255, 255>>}}, metadata,
           "head.bias"}
        ] do
      :ok = Safetensors.write(path, tensors, metadata)
      error = error(Trainer.restore(fresh, path))
      assert Exception.message(error) =~ says
      assert Policy.weights!(fresh.policy) == weights
    end

    other = Policy.init!(:mamba1, d_input: 2, heads: @heads, d_model: 4, layers: 2, backend: :host)
    Trainer.save!(trainer, path)
    assert error(Trainer.restore(Trainer.new!(other, @options), path)).kind == :invalid_checkpoint
    assert error(Trainer.save(trainer, Path.join(folder, "none/run"))).kind == :file_error
  end
end
