defmodule ExPhil.Native.Trainer.CarryTest do
  # Truncated back-propagation through carried states: `carry: true`.
  use ExUnit.Case, async: true

  alias ExPhil.Native.{AdamW, Error, Loss, Policy, Safetensors, Tensor, Trainer}
  alias ExPhil.Native.Trainer.{Data, Lanes}

  @moduletag :tmp_dir
  @heads [x: 3, jump: {2, :binary}]
  @options [learning_rate: 0.02, clip_norm: 0.5, batch: 3, seq: 4, carry: true, seed: 4]

  defp policy(trunk, seed \\ 1) do
    sizes = if trunk == :gated_deltanet, do: [num_heads: 2], else: []

    Policy.init!(
      trunk,
      [d_input: 2, heads: @heads, d_model: 6, layers: 2, seed: seed, backend: :host] ++ sizes
    )
  end

  defp sequence(count, seed) do
    {values, _} = Enum.map_reduce(1..count, :rand.seed_s(:exsss, seed), fn _, r -> :rand.uniform_s(3, r) end)
    frames = Tensor.from_list(for v <- values, do: [v / 3, 1.0])
    {frames, Tensor.from_list(for(v <- [1 | Enum.drop(values, -1)], do: [v - 1, rem(v, 2), div(v, 2)]), :s32)}
  end

  defp sequences(lengths), do: for({count, seed} <- Enum.with_index(lengths), do: sequence(count, seed))
  defp fit!(trainer, data, steps), do: Trainer.fit!(trainer, data, steps: steps, progress: false)
  defp error(result), do: with({:error, %Error{} = error} <- result, do: error)

  defp excerpt({{:f32, _, frames}, {:s32, _, targets}}, first, count) do
    {{:f32, {1, count, 2}, binary_part(frames, 8 * first, 8 * count)},
     {:s32, {1, count, 3}, binary_part(targets, 12 * first, 12 * count)}}
  end

  test "each excerpt begins with the state in which the one before it ended, and a new sequence as a new agent" do
    sequence = sequence(10, 1)

    for trunk <- [:gru, :lstm, :min_gru, :min_lstm, :gated_deltanet, :mamba1] do
      trained = fit!(Trainer.new!(policy(trunk), Keyword.put(@options, :batch, 1)), [sequence], 4)

      # The same by hand.
      policy = policy(trunk)
      weights = Policy.weights!(policy)
      optimiser = AdamW.new(weights, learning_rate: 0.02, clip_norm: 0.5)
      groups = Policy.info!(policy).groups

      {_weights, _optimiser, _state, losses} =
        Enum.reduce([{0, 4}, {4, 4}, {8, 2}, {0, 4}], {weights, optimiser, nil, []}, fn {first, count},
                                                                                        {weights, optimiser,
                                                                                         state, losses} ->
          state = if first > 0, do: state
          {frames, targets} = excerpt(sequence, first, count)
          {outs, last} = Policy.forward!(policy, frames, initial_state: state, return_state: true)
          loss = Loss.cross_entropy(outs, targets, groups)
          gradients = Policy.grad!(policy, frames, loss.d_outs, initial_state: state)
          {weights, optimiser, _norm} = AdamW.step(optimiser, weights, gradients)
          Policy.update!(policy, weights)
          {weights, optimiser, last, [loss.loss | losses]}
        end)

      assert {trunk, Enum.map(trained.history, &elem(&1, 1))} == {trunk, losses}
      assert Policy.weights!(trained.policy) == Policy.weights!(policy)
      # Without it every excerpt begins as a new agent.
      plain = fit!(Trainer.new!(policy(trunk), learning_rate: 0.02, batch: 1, seq: 4), [sequence], 4)
      assert Policy.weights!(plain.policy) != Policy.weights!(trained.policy)
    end
  end

  test "lanes go on through sequences of any length, each with its own state" do
    options = %{batch: 3, seq: 4, seed: 2, d_input: 2, loss: {:cross_entropy, [], 3}}
    data = Data.read!(sequences([5, 9, 3]), "sequences", options)
    first = %{h: {:f32, {1, 1, 1, 2}, <<7.0::float-32-little, 8.0::float-32-little>>}}
    # The state of lane b after step s is {s, b}.
    after_step = fn step ->
      %{h: {:f32, {3, 1, 1, 2}, for(b <- 0..2, v <- [step, b], into: <<>>, do: <<v / 1::float-32-little>>)}}
    end

    {lanes, begun} =
      Enum.reduce(1..60, {nil, []}, fn step, {lanes, begun} ->
        {places, pieces} = Lanes.draw(data, options, step, lanes)
        {:f32, {3, 1, 1, 2}, rows} = Lanes.initial_state(places, lanes, first).h
        rows = for <<a::float-32-little, b::float-32-little <- rows>>, do: {a, b}

        for {{{index, frame}, {sequence, frame_of_piece, length}, row}, lane} <-
              Enum.with_index(Enum.zip([places, pieces, rows])) do
          assert sequence == elem(data.sequences, index)
          assert frame_of_piece == frame and length == min(4, sequence.count - frame)
          assert row == if(frame == 0, do: {7.0, 8.0}, else: {step - 1.0, lane / 1})
          if frame > 0, do: assert({index, frame} == Enum.at(lanes.places, lane))
        end

        {Lanes.next("data", places, 4, after_step.(step)), begun ++ for({index, 0} <- places, do: index)}
      end)

    assert %Lanes{data: "data"} = lanes
    assert Enum.sort(Enum.uniq(begun)) == [0, 1, 2]
  end

  test "20 steps are 9, a file, and 11 more, bit for bit", %{tmp_dir: folder} do
    path = Path.join(folder, "run.safetensors")
    data = sequences([20, 33, 7, 12])

    for trunk <- [:lstm, :gated_deltanet, :mamba1] do
      whole = fit!(Trainer.new!(policy(trunk), @options), data, 20)
      :ok = Trainer.save(fit!(Trainer.new!(policy(trunk), @options), data, 9), path)
      again = Trainer.restore!(Trainer.new!(policy(trunk), @options), path)
      rest = fit!(again, data, 11)
      assert Policy.weights!(rest.policy) == Policy.weights!(whole.policy)
      assert rest.history == whole.history
      assert rest.lanes == whole.lanes
      # In several calls on the same sequences as well; on others the states begin anew.
      parts = Enum.reduce([3, 1, 16], Trainer.new!(policy(trunk), @options), &fit!(&2, data, &1))
      assert parts.history == whole.history
      others = sequences([20, 33, 7, 13])
      again = Trainer.restore!(Trainer.new!(policy(trunk), @options), path)
      assert %Lanes{} = again.lanes
      carried = fit!(again, others, 1)
      fresh = fit!(%{Trainer.restore!(Trainer.new!(policy(trunk), @options), path) | lanes: nil}, others, 1)
      assert Policy.weights!(carried.policy) == Policy.weights!(fresh.policy)
    end
  end

  test "what is trained from carried states is judged from them" do
    data = sequences([20, 33, 7])
    policy = policy(:gru)
    whole = Trainer.evaluate!(Trainer.new!(policy, []), data)
    assert Trainer.evaluate!(Trainer.new!(policy, @options), data) == whole
    assert Trainer.evaluate!(Trainer.new!(policy, Keyword.delete(@options, :carry)), data) != whole
  end

  test "what is wrong is an error that names it", %{tmp_dir: folder} do
    path = Path.join(folder, "run.safetensors")
    assert error(Trainer.new(policy(:gru), carry: true)).argument == ":carry"
    assert error(Trainer.new(policy(:gru), carry: 1, seq: 4)).argument == ":carry"
    :ok = Trainer.save(fit!(Trainer.new!(policy(:gru), @options), sequences([9]), 2), path)
    other = Trainer.new!(policy(:gru), Keyword.put(@options, :batch, 2))
    assert %{kind: :invalid_checkpoint, message: message} = error(Trainer.restore(other, path))
    assert message =~ ~s("lanes", s32 of shape {2, 2}, as :batch says)
    # Without :carry the states are not needed.
    assert {:ok, %{lanes: nil}} = Trainer.restore(Trainer.new!(policy(:gru), batch: 2), path)
    tensors = Safetensors.read!(path)
    {:ok, metadata} = Safetensors.metadata(path)
    bad = Map.put(tensors, "state/h", {:f32, {3, 2, 1, 5}, :binary.copy(<<0::32>>, 30)})
    :ok = Safetensors.write(path, bad, metadata)
    assert %{kind: :invalid_checkpoint} = error(Trainer.restore(Trainer.new!(policy(:gru), @options), path))
    :ok = Safetensors.write(path, Map.delete(tensors, "state/h"), metadata)
    assert %{kind: :invalid_checkpoint} = error(Trainer.restore(Trainer.new!(policy(:gru), @options), path))
  end
end
