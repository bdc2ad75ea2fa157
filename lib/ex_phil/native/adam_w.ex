defmodule ExPhil.Native.AdamW do
  @moduledoc """
  The optimiser AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization") on maps of tensors by name, such as
  `ExPhil.Native.Policy.weights/1` and `grad/4` return.

      optimiser = AdamW.new(weights, learning_rate: 1.0e-3)
      {weights, optimiser, _norm} = AdamW.step(optimiser, weights, gradients)

  Its steps are computed natively, in the type of the weights (f32 or f64): a million weights take milliseconds.
  """

  alias ExPhil.Native.{Error, NIF, Options, Safetensors}

  @enforce_keys [:options, :step, :m, :v]
  defstruct [:options, :step, :m, :v]

  @type tensors :: %{String.t() => {:f32 | :f64, tuple(), binary()}}
  @type t :: %__MODULE__{options: map(), step: non_neg_integer(), m: tensors(), v: tensors()}

  @most_rate 3.4e38
  @known [:learning_rate, :beta1, :beta2, :epsilon, :weight_decay, :clip_norm]

  @doc """
  The optimiser before its first step, for `weights`, f32 or f64 tensors by name. Raises `ExPhil.Native.Error` for anything else.

    * `:learning_rate` (1.0e-3), `:beta1` (0.9), `:beta2` (0.999), `:epsilon` (1.0e-8)
    * `:weight_decay` (0.01) - of tensors with two axes or more, but for `A_log`, as Mamba is trained
    * `:clip_norm` - scales all gradients down together where their norm is above it (not clipped)
  """
  @spec new(tensors(), keyword()) :: t()
  def new(weights, options \\ []) do
    check!(weights, "weights")

    zeros =
      Map.new(weights, fn {name, {type, shape, binary}} ->
        {name, {type, shape, <<0::size(bit_size(binary))>>}}
      end)

    %__MODULE__{options: options!(options), step: 0, m: zeros, v: zeros}
  end

  # Gradients are compared with the weights, tensor by tensor, where they are used.
  defp check!(tensors, argument) do
    if not is_map(tensors) or is_struct(tensors),
      do: Options.invalid(argument, "a map of tensors by name", tensors)

    for {name, tensor} <- tensors do
      if not is_binary(name), do: Options.invalid(argument, "a map whose keys are strings", name)

      if not Safetensors.sound?(tensor, [:f32, :f64]),
        do:
          Options.invalid(
            argument,
            "a map of {:f32 or :f64, shape, binary} that agree: #{Error.quoted(name)} must be one",
            tensor
          )
    end

    :ok
  end

  defp values(options) do
    %{
      learning_rate: learning_rate(options, 1.0e-3),
      beta1: fraction(options, :beta1, 0.9),
      beta2: fraction(options, :beta2, 0.999),
      epsilon: Options.positive_float(options, :epsilon, 1.0e-8),
      weight_decay: fraction(options, :weight_decay, 0.01),
      clip_norm: Options.positive_float(options, :clip_norm, nil)
    }
  end

  # Weights are f32 as a rule, and a step multiplies by it in their type.
  defp learning_rate(options, default) do
    case Options.positive_float(options, :learning_rate, default) do
      rate when rate <= @most_rate -> rate
      rate -> Options.invalid(":learning_rate", "at most #{@most_rate}, which f32 holds", rate)
    end
  end

  defp fraction(options, name, default) do
    case Keyword.get(options, name, default) do
      value when is_number(value) and value >= 0 and value < 1 -> value * 1.0
      value -> Options.invalid(inspect(name), "a number from 0 up to 1", value)
    end
  end

  @doc """
  One step: returns `{weights, optimiser, norm}`, new tensors of the same names and shapes, and the norm of all gradients before
  clipping. `gradients` has a tensor for every weight, of its type and shape; another one raises `ExPhil.Native.Error`. Numbers that are not finite raise, given or as the result of the step, and change nothing.
  `:learning_rate` overrides that of `new/2` for this step.
  """
  @spec step(t(), tensors(), tensors(), keyword()) :: {tensors(), t(), float()}
  def step(%__MODULE__{options: o} = optimiser, weights, gradients, options \\ []) do
    learning_rate = Options.read!(options, [:learning_rate], &learning_rate(&1, o.learning_rate))

    check!(weights, "weights")
    check!(gradients, "gradients")

    step = optimiser.step + 1

    case NIF.adamw(
           Enum.map(weights, &operands!(&1, gradients, optimiser)),
           settings(o, learning_rate, step)
         ) do
      {:ok, {tensors, norm}} ->
        weights = Map.new(tensors, fn {name, weight, _, _} -> {name, weight} end)
        m = Map.new(tensors, fn {name, _, m, _} -> {name, m} end)
        v = Map.new(tensors, fn {name, _, _, v} -> {name, v} end)
        {weights, %{optimiser | step: step, m: m, v: v}, norm}

      {:error, reason} ->
        raise Error.from_nif(reason)
    end
  end

  defp operands!({name, {_, shape, _} = weight}, gradients, optimiser) do
    {name, weight, fetch!(gradients, name, "gradients"), fetch!(optimiser.m, name, "weights"),
     fetch!(optimiser.v, name, "weights"), decays?(name, shape)}
  end

  @doc false
  # Whether :weight_decay is for this tensor.
  @spec decays?(String.t(), tuple()) :: boolean()
  def decays?(name, shape), do: tuple_size(shape) > 1 and not String.ends_with?(name, "A_log")

  @doc false
  # The options of new/2 as they are kept. Raises.
  @spec options!(keyword()) :: map()
  def options!(options), do: Options.read!(options, @known, &values/1)

  @doc false
  # As the library takes them, for a step of this number.
  @spec settings(map(), float(), pos_integer()) :: tuple()
  def settings(options, learning_rate, step) do
    {learning_rate, options.beta1, options.beta2, options.epsilon, options.weight_decay, options.clip_norm,
     step}
  end

  defp fetch!(tensors, name, argument) do
    case tensors do
      %{^name => tensor} -> tensor
      _ -> raise Error.new(:invalid_argument, argument, "#{argument} must have a tensor #{inspect(name)}")
    end
  end
end
