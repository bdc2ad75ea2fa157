defmodule ExPhil.Native.Trainer.Resident do
  @moduledoc false
  # The weights and the optimiser's means of ExPhil.Native.Trainer, which stay where the policy is: on its
  # device, or in the library's memory. Every function raises ExPhil.Native.Error.

  alias ExPhil.Native.{AdamW, Error, Loss, NIF, Policy, Queue, Trainer}
  alias ExPhil.Native.Trainer.Data

  @type values :: %{
          step: non_neg_integer(),
          weights: Policy.weights(),
          m: Policy.weights(),
          v: Policy.weights()
        }

  @doc """
  Begins with the policy's weights, and with means of zeros; or with those of `values/1`, whose weights the policy has already.
  `weights` say which tensors there are.
  """
  @spec new!(Policy.t(), map(), Policy.weights(), nil | values()) :: reference()
  def new!(%Policy{ref: policy}, %{loss: loss}, weights, from \\ nil) do
    tensors = for {name, {_type, shape, _}} <- weights, do: {name, AdamW.decays?(name, shape)}
    start = if from, do: {from.step, {Map.to_list(from.m), Map.to_list(from.v)}}, else: {0, nil}
    ok!(Queue.run(&NIF.new_training(policy, groups(loss), tensors, start, &1)))
  end

  defp groups(:mean_squared_error), do: nil
  defp groups({:cross_entropy, groups, _columns}), do: Loss.native!(groups)

  # The library makes the batch of the sequences' own binaries: one of a megabyte, made anew for each step,
  # would cost more here than AdamW does on a device.
  @doc """
  One step on these pieces, padded to the longest: its loss and norm, and the states after the last frames where initial ones are given.
  """
  @spec step!(Trainer.t(), [Data.piece()], nil | Policy.state(), float()) ::
          {float(), float(), nil | Policy.state()}
  def step!(%Trainer{policy: policy, resident: resident} = trainer, pieces, state, rate) do
    settings = AdamW.settings(trainer.optimiser, rate, Trainer.steps(trainer) + 1)
    state = state && Map.to_list(state)

    parts =
      for {sequence, first, count} <- pieces,
          do: {sequence.frames, sequence.targets, sequence.mask, first, count}

    {loss, norm, last} = ok!(Queue.run(&NIF.train_step(resident, policy.ref, parts, state, settings, &1)))
    {loss, norm, last && Map.new(last)}
  end

  @doc "All numbers, as they are after the trainer's last step."
  @spec values!(Trainer.t()) :: values()
  def values!(%Trainer{policy: policy, resident: resident} = trainer) do
    {step, weights, m, v} = ok!(Queue.run(&NIF.training_values(resident, policy.ref, &1)))
    taken = Trainer.steps(trainer)

    if step != taken do
      raise Error.new(
              :mismatch,
              "trainer",
              "the trainer has taken #{taken} steps, and its policy #{step}: use the trainer that the last step returned"
            )
    end

    %{step: step, weights: Map.new(weights), m: Map.new(m), v: Map.new(v)}
  end

  defp ok!({:ok, value}), do: value
  defp ok!({:error, reason}), do: raise(Error.from_nif(reason))
end
