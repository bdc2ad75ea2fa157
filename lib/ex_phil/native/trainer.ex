defmodule ExPhil.Native.Trainer do
  @moduledoc """
  Trains a policy on sequences of frames and targets: batches, schedules, clipping, masks, evaluation, a curve of the loss, and
  checkpoints from which a run goes on with the same bits.

      {:ok, policy} = Policy.init(:mamba1, d_input: 5, heads: [x: 7, y: 7], d_model: 48, layers: 2, seed: 1)
      {:ok, trainer} = Trainer.new(policy, learning_rate: 3.0e-3, schedule: {:cosine, 3000}, clip_norm: 1.0)
      {:ok, trainer} = Trainer.fit(trainer, sequences, steps: 3000, held_out: others, csv: "loss.csv")
      :ok = Policy.save(trainer.policy, "policy.safetensors")

  A *sequence* is `{frames, targets}`, or `{frames, targets, mask}`:

    * `frames` - f32, {seq, d_input}
    * `targets` - of the same frames: for `:cross_entropy` s32, {seq, columns}, as `ExPhil.Native.Loss.cross_entropy/4` takes them; for
      `:mean_squared_error` f32, {seq, d_output}
    * `mask` - s32, {seq}: a frame with 0 is seen by the policy and has no loss

  Sequences of one call may differ in length: those of a batch are padded with frames that have no loss. Each begins with a new
  agent's state, if `:carry` of `new/2` does not say otherwise.

  A trainer is a value, but its policy is not: it is resident, and has the weights of the last step. `trainer.policy` is that policy.
  Every step ends its sessions, so make new ones to play between steps. The optimiser's means are resident too: a whole step runs
  where the policy is, and the next one needs the trainer that the last one returned; an older one is an error of kind `:mismatch`.
  Numbers leave the device when they are asked for: by `save/2`, by `ExPhil.Native.Policy.weights/1` and `ExPhil.Native.Policy.save/2`, or
  to play the policy, which loads them anew.

  Functions return `{:error, %ExPhil.Native.Error{}}` where something is wrong; the versions with a `!` raise it.
  """

  use ExPhil.Native.Raising

  alias ExPhil.Native.{AdamW, Error, Loss, Options, Policy}
  alias ExPhil.Native.Trainer.{Curve, Data, Resident, Run, Schedule, Store}

  @enforce_keys [:policy, :resident, :optimiser, :options]
  defstruct [:policy, :resident, :optimiser, :options, step: 0, lanes: nil, history: [], evaluations: []]

  @typedoc "One step: its loss before the step, its learning rate, and the norm of its gradient before clipping."
  @type entry :: {step :: pos_integer(), loss :: float(), learning_rate :: float(), norm :: float()}

  @typedoc """
  `policy` is the policy that is trained. `history` has an entry for each step and `evaluations` the loss of each evaluation on
  held-out sequences in `fit/3`, the last one first. The other fields are not part of the interface.
  """
  @type t :: %__MODULE__{
          policy: Policy.t(),
          resident: reference(),
          optimiser: map(),
          options: map(),
          step: non_neg_integer(),
          lanes: term(),
          history: [entry()],
          evaluations: [{step :: non_neg_integer(), loss :: float()}]
        }

  @type tensor :: ExPhil.Native.Tensor.t()
  @type sequence ::
          {frames :: tensor(), targets :: tensor()}
          | {frames :: tensor(), targets :: tensor(), mask :: tensor()}
  @type evaluation :: %{
          required(:loss) => float(),
          optional(:losses) => %{Loss.name() => float()},
          optional(:correct) => %{Loss.name() => float()}
        }
  @optimiser [:learning_rate, :beta1, :beta2, :epsilon, :weight_decay, :clip_norm]
  @known [:loss, :batch, :seq, :carry, :seed, :schedule, :warm_up, :least_rate | @optimiser]

  @doc """
  A trainer before its first step.

  Returns `{:ok, trainer}`, or an error that names the option.

    * `:loss` - `:cross_entropy` over the policy's named heads, `{:cross_entropy, groups}` with `t:ExPhil.Native.Loss.group/0`s, or
      `:mean_squared_error`. `:cross_entropy` where the policy has heads, otherwise it must be given
    * `:batch` - sequences of a step (16)
    * `:seq` - frames of an excerpt: a step takes so many frames, from a random place, of each of its sequences, where all places of
      all sequences are as likely. Without it a sequence is taken whole
    * `:carry` - with `:seq`: a step takes the next so many frames of each of its sequences, from the state in which the frames before them
      ended (truncated back-propagation through time; the gradient ends where the excerpt begins). A sequence that ends makes room for
      another. For policies that are played with a carried state; without it every excerpt begins as a new agent, which is how a policy
      with a `:window` is played (`false`)
    * `:seed` - of the choice of sequences, an integer (0). The batch of a step depends on the seed and the step's number
    * `:learning_rate` (1.0e-3), `:beta1`, `:beta2`, `:epsilon`, `:weight_decay`, `:clip_norm` - as in `ExPhil.Native.AdamW.new/2`
    * `:schedule` - `:constant`, or `{:cosine, steps}`: from `:learning_rate` down to `:least_rate` (0) over so many steps, half a cosine
    * `:warm_up` - over so many first steps the rate rises in a line to what the schedule says (0)

      iex> alias ExPhil.Native.{Policy, Tensor, Trainer}
      iex> policy = Policy.init!(:mamba1, d_input: 1, heads: [sign: 2], d_model: 8, layers: 1, seed: 1, backend: :host)
      iex> sequence = {Tensor.from_list([[1.0], [-1.0], [1.0]]), Tensor.from_list([[1], [0], [1]], :s32)}
      iex> trainer = Trainer.new!(policy, learning_rate: 0.01, batch: 1)
      iex> trainer = Trainer.fit!(trainer, [sequence], steps: 20, progress: false)
      iex> Trainer.evaluate!(trainer, [sequence]).correct
      %{sign: 1.0}
  """
  fallible new(policy :: Policy.t(), options :: keyword() \\ []) :: t()

  def new(policy, options \\ [])

  def new(%Policy{} = policy, options) do
    with {:ok, weights} <- Policy.weights(policy) do
      safely(fn ->
        read = Options.read!(options, @known, &read(&1, policy))
        optimiser = AdamW.options!(Keyword.take(options, @optimiser))
        resident = Resident.new!(policy, read, weights)
        %__MODULE__{policy: policy, resident: resident, optimiser: optimiser, options: read}
      end)
    end
  end

  def new(other, _options), do: {:error, Error.invalid("policy", "a policy", other)}

  defp read(options, policy) do
    info = Policy.info!(policy)

    %{
      d_input: info.d_input,
      d_output: info.d_output,
      loss: loss(Keyword.get(options, :loss, :cross_entropy), info.groups),
      batch: Options.positive_integer(options, :batch, 16),
      seq: Options.optional_positive_integer(options, :seq),
      carry: carry(options),
      seed: Keyword.get(options, :seed, 0) |> integer!(),
      schedule: Schedule.read!(options)
    }
  end

  defp carry(options) do
    carry = Options.boolean(options, :carry, false)
    if carry and options[:seq] == nil, do: Options.invalid(":carry", "given with :seq", true)
    carry
  end

  defp integer!(seed) when is_integer(seed), do: seed
  defp integer!(other), do: Options.invalid(":seed", "an integer", other)

  defp loss(:mean_squared_error, _groups), do: :mean_squared_error
  defp loss({:cross_entropy, groups}, _groups), do: {:cross_entropy, groups, Loss.columns!(groups)}

  defp loss(:cross_entropy, []) do
    expected = "{:cross_entropy, groups} or :mean_squared_error for a policy without named heads"
    Options.invalid(":loss", expected, :cross_entropy)
  end

  defp loss(:cross_entropy, groups), do: loss({:cross_entropy, groups}, groups)

  defp loss(other, _groups),
    do: Options.invalid(":loss", ":cross_entropy, {:cross_entropy, groups} or :mean_squared_error", other)

  @doc "How many steps were taken: an integer from 0."
  @spec steps(t()) :: non_neg_integer()
  def steps(%__MODULE__{step: step}), do: step

  @doc "The learning rate of a step, a float. Steps count from 1."
  @spec learning_rate(t(), pos_integer()) :: float()
  def learning_rate(%__MODULE__{options: options}, step), do: Schedule.rate(options.schedule, step)

  @doc """
  One step on exactly these sequences: forward pass, loss, gradient, AdamW, and the policy has the new weights. The loss and the gradient
  are means over the frames that have a loss.

    * `sequences` - a list of `{frames, targets}` or `{frames, targets, mask}`: f32 {seq, d_input}, s32 {seq, columns} or f32 {seq,
      d_output}, and s32 {seq}

  Returns `{:ok, trainer}`, whose `history` begins with the step. A sequence that does not fit the policy is an error that names it; a
  loss that is not finite is one too, and changes nothing.
  """
  fallible step(trainer :: t(), sequences :: [sequence()]) :: t()

  def step(%__MODULE__{options: options} = trainer, sequences) do
    safely(fn -> Run.step(trainer, sequences |> Data.read!("sequences", options) |> Data.all()) end)
  end

  def step(other, _sequences), do: not_a_trainer(other)

  @doc """
  Takes `:steps` steps, each on a batch drawn from the sequences, which are those of `step/2`.

  Returns `{:ok, trainer}`. Errors are those of `step/2`, and of kind `:file_error` for the files below.

    * `:steps` - how many; must be given
    * `:held_out` - sequences that are not trained on. Their loss is computed every `:evaluate_every` steps (a tenth of
      `:steps`) and after the last
    * `:progress` - whether to print a line of progress (`true`)
    * `:csv`, `:svg` - files for the curve of the loss, written with each evaluation and at the end: see `csv/1` and `svg/1`
    * `:checkpoint` - a file for `save/2`, written every `:checkpoint_every` steps (a tenth of `:steps`) and after the last

  `fit/3` may be called many times, with other sequences each time: steps, schedule and history go on. With `:carry` the states go on
  too where the sequences are the same; with others each begins anew.
  """
  fallible fit(trainer :: t(), sequences :: [sequence()], options :: keyword() \\ []) :: t()

  def fit(trainer, sequences, options \\ [])

  def fit(%__MODULE__{} = trainer, sequences, options) do
    safely(fn -> Run.fit(trainer, sequences, options) end)
  end

  def fit(other, _sequences, _options), do: not_a_trainer(other)

  @doc """
  The loss on sequences, those of `step/2`, without a step.

  Returns `{:ok, %{loss: float}}`, for `:cross_entropy` also with `losses` and `correct` of each group, as in
  `ExPhil.Native.Loss.cross_entropy/4`. Errors are those of `step/2`. Where the trainer has `:seq`, the sequences are cut into pieces of that length, each
  from a new agent's state, as in training; with `:carry` they are not cut.
  """
  fallible evaluate(trainer :: t(), sequences :: [sequence()]) :: evaluation()

  def evaluate(%__MODULE__{} = trainer, sequences) do
    safely(fn ->
      trainer |> Run.held_out_loss(Data.read!(sequences, "sequences", trainer.options)) |> Map.delete(:d_outs)
    end)
  end

  def evaluate(other, _sequences), do: not_a_trainer(other)

  @doc """
  Writes the trainer as a file for `restore/2`: weights, the optimiser's state, history, evaluations, and of `:carry` the states. The file is complete or
  as it was before. `ExPhil.Native.Policy.save/2` writes a policy to play.

  Returns `:ok`, or an error of kind `:file_error`.
  """
  fallible save(trainer :: t(), path :: Path.t()) :: :ok
  def save(%__MODULE__{} = trainer, path), do: Store.save(trainer, path)
  def save(other, _path), do: not_a_trainer(other)

  @doc """
  The trainer where the file of `save/2` left off. `trainer` is a new one of the same policy, backend and options: the policy gets the
  file's weights, and the next steps have the bits that they would have had without the interruption.

  Returns `{:ok, trainer}`. Whatever is wrong with the file is an error and changes nothing.
  """
  fallible restore(trainer :: t(), path :: Path.t()) :: t()

  def restore(%__MODULE__{} = trainer, path) do
    with {:ok, stored, values} <- Store.read(trainer, path),
         {:ok, policy} <- Policy.update(trainer.policy, values.weights) do
      safely(fn ->
        resident = Resident.new!(policy, trainer.options, values.weights, values)
        struct!(%{trainer | policy: policy, resident: resident}, stored)
      end)
    end
  end

  def restore(other, _path), do: not_a_trainer(other)

  @doc """
  The curve of the loss as CSV, a string with a line for each step: `step,loss,learning_rate,norm,held_out`. The last is empty for steps
  without an evaluation.
  """
  @spec csv(t()) :: String.t()
  def csv(%__MODULE__{} = trainer), do: Curve.csv(trainer.history, trainer.evaluations)

  @doc """
  The curve of the loss as SVG, which gnuplot draws.

  Returns `{:ok, svg}`, a string. Without gnuplot this is an error of kind `:unsupported` that says how to get it. So is a trainer
  without a step.
  """
  fallible svg(trainer :: t()) :: String.t()
  def svg(%__MODULE__{} = trainer), do: Curve.svg(trainer.history, trainer.evaluations)

  defp not_a_trainer(other), do: {:error, Error.invalid("trainer", "a trainer of Trainer.new/2", other)}

  defp safely(call) do
    {:ok, call.()}
  rescue
    error in Error -> {:error, error}
  end
end
