defmodule ExPhil.Native.SelectiveScan.Step do
  @moduledoc false
  # SelectiveScan.step/7 is a scan of one step: adds the axis seq to its operands.

  alias ExPhil.Native.{Error, Tensor}
  alias ExPhil.Native.SelectiveScan.Operands

  @doc "x, dt, a, b and c with a seq of 1, and the options with z and the state. x and a must be packed."
  @spec operands!(tuple(), Operands.pack(), map()) :: {tuple(), map()}
  def operands!({state, x, dt, a, b, c}, pack, options) do
    batch = step_batch!(x)
    dt = with_seq!(pack.(dt, "dt"), "dt", batch)
    z = if options.z, do: with_seq!(pack.(options.z, ":z"), ":z", batch)
    b = projection_with_seq!(pack.(b, "b"), "b", batch)
    c = projection_with_seq!(pack.(c, "c"), "c", batch)
    state = state!(pack.(state, "state"), a, batch)
    {{add_seq(x), dt, a, b, c}, %{options | z: z, initial_state: state}}
  end

  @doc "Removes the axis seq of a result, {batch, 1, dim}."
  @spec drop_seq(Tensor.plain()) :: Tensor.plain()
  def drop_seq({type, shape, binary}), do: {type, Tuple.delete_at(shape, 1), binary}

  defp step_batch!({_type, {_batch, _dim} = shape, _binary}), do: shape
  defp step_batch!(x), do: raise(Error.invalid("x", "of shape {batch, dim}", x))

  defp with_seq!({_type, shape, _binary} = plain, _argument, shape), do: add_seq(plain)

  defp with_seq!(other, argument, shape),
    do: raise(Error.invalid(argument, "of the shape of x, #{inspect(shape)}", other))

  defp state!({_, {batch, dim, n}, _} = plain, {_, a_shape, _}, {batch, dim})
       when n == elem(a_shape, 1),
       do: plain

  defp state!(other, _a, {batch, dim}),
    do: raise(Error.invalid("state", "of shape {#{batch}, #{dim}, state}, with the state of a", other))

  # {batch, state} and {batch, groups, state} get a seq of 1; {dim, state} is constant and unchanged.
  defp projection_with_seq!({_type, {batch, _state}, _binary} = plain, _argument, {batch, _dim}),
    do: add_seq(plain)

  defp projection_with_seq!({_type, {batch, _groups, _state}, _binary} = plain, _argument, {batch, _dim}),
    do: add_seq(plain)

  defp projection_with_seq!({_type, {dim, _state}, _binary} = plain, _argument, {_batch, dim}), do: plain

  defp projection_with_seq!(other, argument, {batch, dim}) do
    shapes = "{#{batch}, state}, {#{batch}, groups, state} or {#{dim}, state}"
    raise Error.invalid(argument, "of shape #{shapes}", other)
  end

  defp add_seq({type, shape, binary}), do: {type, Tuple.insert_at(shape, 1, 1), binary}
end
