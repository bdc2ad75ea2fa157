defmodule ExPhil.Native.Loss do
  @moduledoc """
  Losses of a policy's outputs: the value, and `d_outs`, its gradient by the outputs, which `ExPhil.Native.Policy.grad/4` takes.

  `outs` is f32 or f64, of any shape whose last axis is the outputs; `d_outs` has its type, shape and form. Values are computed
  in double. Every bad argument raises `ExPhil.Native.Error`; so do outputs without a finite loss.
  """

  alias ExPhil.Native.{Error, NIF, Tensor}

  @typedoc "Outputs that belong together: `{name, range}` is one choice among them, `{name, range, :binary}` separate events."
  @type group :: {atom(), Range.t()} | {atom(), Range.t(), :binary}

  @doc """
  Cross-entropy over named groups of outputs: `%{loss: float, losses: %{name => float}, correct: %{name => float}, d_outs:
  tensor}`.

  The loss of a row is the sum over the groups, and a binary group counts the sum over its outputs; `loss` is the mean over the
  rows and `losses` its parts. `correct` is the share of targets that the most likely choice meets (the first of equals; a binary
  output is on above 0). Outputs of no group get no gradient.

  `targets` is s32, of the shape of `outs` with another last axis: one column for each choice, the index within its group, and one
  for each output of a binary group, 0 or 1, in the order of `groups`. A target of -1 is left out.

      iex> f32 = fn shape, list -> {:f32, shape, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> outs = f32.({1, 3}, [0.0, 0.0, 0.0])
      iex> targets = {:s32, {1, 2}, <<1::32-little, 1::32-little>>}
      iex> loss = ExPhil.Native.Loss.cross_entropy(outs, targets, [{:stick, 0..1}, {:jump, 2..2, :binary}])
      iex> {:f32, {1, 3}, d_outs} = loss.d_outs
      iex> {Float.round(loss.loss, 4), for(<<v::float-32-little <- d_outs>>, do: v)}
      {1.3863, [0.5, -0.5, -0.5]}
  """
  @spec cross_entropy(Tensor.t(), Tensor.t(), [group()]) :: %{
          loss: float(),
          losses: %{atom() => float()},
          correct: %{atom() => float()},
          d_outs: Tensor.t()
        }
  def cross_entropy(outs, targets, groups) do
    groups = read_groups!(groups)
    {outs, form} = Tensor.pack!(outs, "outs")
    {targets, _} = Tensor.pack!(targets, "targets", [:s32])
    native = for {name, first, count, binary?} <- groups, do: {Atom.to_string(name), first, count, binary?}
    {losses, d_outs} = ok!(NIF.cross_entropy(outs, native, targets))
    named = Enum.zip(groups, losses)

    %{
      loss: losses |> Enum.map(&elem(&1, 1)) |> Enum.sum(),
      losses: Map.new(named, fn {group, {_, loss, _}} -> {elem(group, 0), loss} end),
      correct: Map.new(named, fn {group, {_, _, correct}} -> {elem(group, 0), correct} end),
      d_outs: Tensor.unpack(d_outs, form)
    }
  end

  @doc """
  The mean of (outs - targets)^2 over all elements: `%{loss: float, d_outs: tensor}`. `targets` has the shape and type of `outs`.
  """
  @spec mean_squared_error(Tensor.t(), Tensor.t()) :: %{loss: float(), d_outs: Tensor.t()}
  def mean_squared_error(outs, targets) do
    {outs, form} = Tensor.pack!(outs, "outs")
    {targets, _} = Tensor.pack!(targets, "targets", [elem(outs, 0)])
    {loss, d_outs} = ok!(NIF.mean_squared_error(outs, targets))
    %{loss: loss, d_outs: Tensor.unpack(d_outs, form)}
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
       when is_atom(name) and last >= first and kind in [:choice, :binary],
       do: {name, first, last - first + 1, kind == :binary}

  defp read_group!(other),
    do: raise(Error.invalid("groups", "a list of {name, range} or {name, range, :binary}", other))

  defp ok!({:ok, value}), do: value
  defp ok!({:error, reason}), do: raise(Error.from_nif(reason))
end
