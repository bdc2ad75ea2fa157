defmodule ExPhil.Native.Trainer.PlanTest do
  # What a trainer plans from a seed and a step's number: which frames a step takes, and its learning rate.
  use ExUnit.Case, async: true

  alias ExPhil.Native.{Policy, Tensor, Trainer}

  defp policy,
    do:
      Policy.init!(:mamba1,
        d_input: 2,
        heads: [x: 3, jump: {2, :binary}],
        d_model: 8,
        layers: 1,
        backend: :host
      )

  test "excerpts are drawn from every place, the same for a seed and a step" do
    frames = Tensor.from_list(for i <- 0..9, do: [i * 1.0, 0.0])
    targets = Tensor.from_list(for _ <- 0..9, do: [0, 0, 0])
    targets = {:s32, elem(targets, 1), elem(targets, 2)}
    short = {Tensor.from_list([[50.0, 0.0]]), {:s32, {1, 3}, <<0::96>>}}
    trainer = Trainer.new!(policy(), batch: 4, seq: 3, seed: 7)
    data = Trainer.Data.read!([{frames, targets}, short], "sequences", trainer.options)
    draw = fn step -> data |> Trainer.Data.draw(trainer.options, step) |> Trainer.Data.batch(data) end
    assert draw.(3) == draw.(3)
    assert draw.(3) != draw.(4)

    firsts =
      for step <- 1..200, {frames, _, _} = draw.(step), [[first, _] | _] <- Tensor.to_list(frames), do: first

    counts = Enum.frequencies(firsts)
    assert Map.keys(counts) |> Enum.sort() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 50.0]
    # Nine places, 800 draws: 89 each.
    assert Enum.all?(Map.values(counts), &(&1 in 50..130))
    {{:f32, {4, 3, 2}, _}, {:s32, {4, 3, 3}, _}, mask} = draw.(1)
    assert mask == nil or match?({:s32, {4, 3}, _}, mask)
  end

  test "schedules: constant, cosine, warm-up" do
    rates = fn options, steps ->
      trainer = Trainer.new!(policy(), [loss: :mean_squared_error] ++ options)
      for step <- steps, do: trainer |> Trainer.learning_rate(step) |> Float.round(6)
    end

    assert rates.([learning_rate: 0.1], [1, 9]) == [0.1, 0.1]
    assert rates.([learning_rate: 0.1, warm_up: 4], [1, 2, 4, 5]) == [0.025, 0.05, 0.1, 0.1]
    cosine = [learning_rate: 0.2, schedule: {:cosine, 100}, least_rate: 0.1]
    assert rates.(cosine, [50, 100, 200]) == [0.15, 0.1, 0.1]
    assert rates.([warm_up: 100] ++ cosine, [50]) == [0.075]
    assert [rate] = rates.([learning_rate: 0.2, schedule: {:cosine, 10}], [10])
    assert rate == 0.0
  end
end
