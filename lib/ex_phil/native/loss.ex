defmodule ExPhil.Native.Loss do
  @moduledoc """
  Losses of a policy's outputs, and choices among them.

  A loss is its value, and `d_outs`, its gradient by the outputs, which `ExPhil.Native.Policy.grad/4` takes.

  `outs` is f32 or f64, of any shape whose last axis is the outputs; `d_outs` has its type, shape and form. Values are computed
  in double. Every bad argument raises `ExPhil.Native.Error`; so do outputs without a finite loss.
  """

  alias ExPhil.Native.{Error, NIF, Options, Tensor}

  @typedoc """
  Outputs that belong together: `{name, range}` is one choice among them, `{name, range, :binary}` separate events. A policy
  with named heads says its own: `groups` of `ExPhil.Native.Policy.info/1`.
  """
  @type group :: {name(), Range.t()} | {name(), Range.t(), :binary}
  @type name :: atom() | String.t()

  @doc """
  Cross-entropy over named groups of outputs: `%{loss: float, losses: %{name => float}, correct: %{name => float}, d_outs:
  tensor}`. `outs` is f32 or f64, {..., d_output}, and `d_outs`, the gradient, has its type and shape. Raises `ExPhil.Native.Error`.

  The loss of a row is the sum over the groups, and a binary group counts the sum over its outputs; `loss` is the mean over the
  rows and `losses` its parts. `correct` is the share of targets that the most likely choice meets (the first of equals; a binary
  output is on above 0). Outputs of no group get no gradient.

  `targets` is s32, of the shape of `outs` with another last axis: one column for each choice, the index within its group, and one
  for each output of a binary group, 0 or 1, in the order of `groups`. A target of -1 is left out.

    * `:mask` - s32, of the shape of `outs` without its last axis: a row with 0 is left out, of the mean as well. For
      sequences that were padded

      iex> f32 = fn shape, list -> {:f32, shape, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> outs = f32.({1, 3}, [0.0, 0.0, 0.0])
      iex> targets = {:s32, {1, 2}, <<1::32-little, 1::32-little>>}
      iex> loss = ExPhil.Native.Loss.cross_entropy(outs, targets, [{:stick, 0..1}, {:jump, 2..2, :binary}])
      iex> {:f32, {1, 3}, d_outs} = loss.d_outs
      iex> {Float.round(loss.loss, 4), for(<<v::float-32-little <- d_outs>>, do: v)}
      {1.3863, [0.5, -0.5, -0.5]}
  """
  @spec cross_entropy(Tensor.t(), Tensor.t(), [group()], keyword()) :: %{
          loss: float(),
          losses: %{name() => float()},
          correct: %{name() => float()},
          d_outs: Tensor.t()
        }
  def cross_entropy(outs, targets, groups, options \\ []) do
    mask = Options.read!(options, [:mask], &mask!/1)
    groups = read_groups!(groups)
    {outs, form} = Tensor.pack!(outs, "outs")
    {targets, _} = Tensor.pack!(targets, "targets", [:s32])
    {losses, d_outs} = ok!(NIF.cross_entropy(outs, native(groups), targets, mask))
    named = Enum.zip(groups, losses)

    %{
      loss: losses |> Enum.map(&elem(&1, 1)) |> Enum.sum(),
      losses: Map.new(named, fn {group, {_, loss, _}} -> {elem(group, 0), loss} end),
      correct: Map.new(named, fn {group, {_, _, correct}} -> {elem(group, 0), correct} end),
      d_outs: Tensor.unpack(d_outs, form)
    }
  end

  @doc """
  The mean of (outs - targets)^2 over all elements: `%{loss: float, d_outs: tensor}`. `outs` is f32 or f64, of any shape; `targets` and
  `d_outs` have its shape and type. `:mask` is that of `cross_entropy/4`. Raises `ExPhil.Native.Error`.

      iex> alias ExPhil.Native.{Loss, Tensor}
      iex> outs = Tensor.from_list([[1.0, 2.0], [9.0, 9.0]])
      iex> loss = Loss.mean_squared_error(outs, Tensor.from_list([[0.0, 0.0], [0.0, 0.0]]), mask: Tensor.from_list([1, 0], :s32))
      iex> {loss.loss, Tensor.to_list(loss.d_outs)}
      {2.5, [[1.0, 2.0], [0.0, 0.0]]}
  """
  @spec mean_squared_error(Tensor.t(), Tensor.t(), keyword()) :: %{loss: float(), d_outs: Tensor.t()}
  def mean_squared_error(outs, targets, options \\ []) do
    mask = Options.read!(options, [:mask], &mask!/1)
    {outs, form} = Tensor.pack!(outs, "outs")
    {targets, _} = Tensor.pack!(targets, "targets", [elem(outs, 0)])
    {loss, d_outs} = ok!(NIF.mean_squared_error(outs, targets, mask))
    %{loss: loss, d_outs: Tensor.unpack(d_outs, form)}
  end

  @doc """
  The likeliest choice of every group, in the form of `cross_entropy/4`'s targets: s32, one column for each choice, the index
  within its group (the first of equals), and one for each output of a binary group, 1 where the output is above 0. `outs` is
  f32 or f64, {..., d_output}. Raises `ExPhil.Native.Error`.

      iex> alias ExPhil.Native.{Loss, Tensor}
      iex> outs = Tensor.from_list([[0.1, 0.3, 0.2, -1.0], [2.0, 0.0, 1.0, 1.0]])
      iex> outs |> Loss.argmax([{:stick, 0..2}, {:jump, 3..3, :binary}]) |> Tensor.to_list()
      [[1, 0], [0, 1]]
  """
  @spec argmax(Tensor.t(), [group()]) :: Tensor.t()
  def argmax(outs, groups), do: choose(outs, groups, nil)

  @doc """
  A choice of every group, drawn with the probabilities that the outputs give: softmax for a choice, sigmoid for each output of a
  binary group. Takes and returns tensors as `argmax/2` does: s32, a column for each choice and for each output of a binary group. Raises
  `ExPhil.Native.Error`.

    * `:temperature` - divides the outputs of a choice (1.0); a binary group does not use it
    * `:seed`, `:frame` - integers (0). The random numbers depend on both, and on the row and the column: draw with another frame
      each time. The same call draws the same

      iex> alias ExPhil.Native.{Loss, Tensor}
      iex> outs = Tensor.from_list([[0.0, 50.0, 0.0]])
      iex> outs |> Loss.sample([stick: 0..2], seed: 7, frame: 3) |> Tensor.to_list()
      [[1]]
  """
  @spec sample(Tensor.t(), [group()], keyword()) :: Tensor.t()
  def sample(outs, groups, options \\ []) do
    draws =
      Options.read!(options, [:temperature, :seed, :frame], fn options ->
        {Options.positive_float(options, :temperature, 1.0), Options.seed(options),
         Options.seed(options, :frame)}
      end)

    choose(outs, groups, draws)
  end

  defp choose(outs, groups, draws) do
    groups = read_groups!(groups)
    {outs, form} = Tensor.pack!(outs, "outs")
    choices = ok!(NIF.choose(outs, native(groups), draws))
    Tensor.unpack(choices, form, fn names -> Enum.drop(names, -1) ++ [nil] end)
  end

  @doc false
  # How many columns targets have for these groups. Raises where they are malformed.
  @spec columns!(term()) :: non_neg_integer()
  def columns!(groups) do
    groups
    |> read_groups!()
    |> Enum.map(fn {_, _, count, binary?} -> if binary?, do: count, else: 1 end)
    |> Enum.sum()
  end

  @doc false
  # As the library takes them. Raises where they are malformed.
  @spec native!(term()) :: [tuple()]
  def native!(groups), do: groups |> read_groups!() |> native()

  defp native(groups),
    do: for({name, first, count, binary?} <- groups, do: {to_string(name), first, count, binary?})

  defp mask!(options) do
    if options[:mask], do: options[:mask] |> Tensor.pack!(":mask", [:s32]) |> elem(0)
  end

  defp read_groups!(groups) when is_list(groups) do
    groups = Enum.map(groups, &read_group!/1)
    names = for {name, _, _, _} <- groups, do: name

    # The result has a loss for each name.
    case names -- Enum.uniq(names) do
      [] ->
        groups

      [name | _] ->
        raise(Error.new(:invalid_argument, "groups", "groups must name #{inspect(name)} once, not twice"))
    end
  end

  defp read_groups!(other), do: raise(Error.invalid("groups", "a list of {name, range}", other))

  defp read_group!({name, range}), do: read_group!({name, range, :choice})

  defp read_group!({name, first..last//1, kind})
       when (is_atom(name) or is_binary(name)) and last >= first and kind in [:choice, :binary],
       do: {name, first, last - first + 1, kind == :binary}

  defp read_group!(other),
    do: raise(Error.invalid("groups", "a list of {name, range} or {name, range, :binary}", other))

  defp ok!({:ok, value}), do: value
  defp ok!({:error, reason}), do: raise(Error.from_nif(reason))
end
