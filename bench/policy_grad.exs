# The gradient of a policy over 32 windows of 60 frames, beside its forward pass and a whole training step, in turns.
#
#     mix run bench/policy_grad.exs [host|cuda] [POLICY] [ROUNDS]
#
# POLICY defaults to the shared one (EXPHIL_SHARED, else ../shared). Frames are random. "step" is Trainer.step!: forward pass,
# loss, gradient and AdamW where the policy is. Its parts: "read" checks the sequences, "resident" is the call that trains on them. "weights" brings the numbers out after a step, "play" loads the policy that a step has left. "loss", "adamw" and "update" are the
# calls of a loop of one's own, on the CPU but for the last.
Code.require_file("support.exs", __DIR__)
alias ExPhil.Native.{AdamW, Loss, Policy, Tensor, Trainer}
alias ExPhil.Native.Trainer.{Data, Resident}

{backend, rest} = BenchSupport.arguments()
policy = Policy.load!(Enum.at(rest, 0, BenchSupport.policy()), backend: backend)
rounds = BenchSupport.integer(rest, 1, 21)
{windows, seq} = {32, 60}
%{d_input: d_input, d_output: d_output} = Policy.info!(policy)

batch = fn seed ->
  {:f32, {windows, seq, d_input}, BenchSupport.floats(windows * seq * d_input, seed, 2.0, 0.0)}
end

[frames | _] = batches = for seed <- 1..4, do: batch.(seed)
batches = List.to_tuple(batches)
d_outs = {:f32, {windows, seq, d_output}, :binary.copy(<<0.01::float-32-little>>, windows * seq * d_output)}
weights = Policy.weights!(policy)

targets = {:s32, {windows, seq, 1}, :binary.copy(<<0::32>>, windows * seq)}
group = [{:all, 0..(d_output - 1)}]
outs = Policy.forward!(policy, frames)
optimiser = AdamW.new(weights)

sequences =
  for {:f32, {_, _, _}, bytes} <- Tuple.to_list(batches) do
    for window <- 0..(windows - 1) do
      size = 4 * seq * d_input

      {{:f32, {seq, d_input}, binary_part(bytes, window * size, size)},
       Tensor.from_list(List.duplicate([0], seq), :s32)}
    end
  end
  |> List.to_tuple()

# The trainer and its policy are their own, so that the others find theirs as it was.
trained = Policy.load!(Enum.at(rest, 0, BenchSupport.policy()), backend: backend)
trainer = Trainer.new!(trained, loss: {:cross_entropy, group}, learning_rate: 1.0e-6)
Process.put(:trainer, trainer)

read = fn run ->
  sequences |> elem(rem(run, 4)) |> Data.read!("sequences", trainer.options) |> Data.all()
end

made = List.to_tuple(for run <- 0..3, do: read.(run))

# One step, as Trainer.step!/2 makes it of a batch.
resident = fn run ->
  now = Process.get(:trainer)
  Resident.step!(now, elem(made, rem(run, 4)), nil, 1.0e-6)
  Process.put(:trainer, %{now | step: now.step + 1})
end

calls = [
  window: fn run -> Policy.window!(policy, elem(batches, rem(run, 4))) end,
  forward: fn run -> Policy.forward!(policy, elem(batches, rem(run, 4))) end,
  grad: fn run -> Policy.grad!(policy, elem(batches, rem(run, 4)), d_outs) end,
  loss: fn _ -> Loss.cross_entropy(outs, targets, group) end,
  adamw: fn _ -> AdamW.step(optimiser, weights, weights) end,
  update: fn _ -> Policy.update!(policy, weights) end,
  read: read,
  resident: resident,
  step: fn run ->
    Process.put(:trainer, Trainer.step!(Process.get(:trainer), elem(sequences, rem(run, 4))))
  end,
  weights: fn _ -> Policy.weights!(trained) end,
  play: fn _ -> Policy.info!(trained) end
]

for {_, call} <- calls, do: call.(0)

times =
  for run <- 1..rounds, {name, call} <- calls, do: {name, elem(BenchSupport.timed(fn -> call.(run) end), 0)}

sorted = for {name, _} <- calls, do: {name, times |> Keyword.get_values(name) |> Enum.sort()}
[window, forward] = for name <- [:window, :forward], do: Enum.at(sorted[name], div(rounds, 2))

for {name, list} <- sorted do
  [best, median, worst] = for at <- [0, div(rounds, 2), rounds - 1], do: Enum.at(list, at)
  [to_window, to_forward] = for of <- [window, forward], do: Float.round(median / of, 2)

  IO.puts(
    "#{name}: median #{round(median)} us, best #{round(best)}, worst #{round(worst)}; " <>
      "#{to_window} times window, #{to_forward} times forward"
  )
end
