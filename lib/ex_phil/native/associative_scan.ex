defmodule ExPhil.Native.AssociativeScan do
  @moduledoc """
  Cumulative operations and linear recurrences along one axis of a tensor, on the GPU or the CPU.

  | call | y_t | types |
  |---|---|---|
  | `cumsum/2` | x_0 + ... + x_t | f32 f16 bf16 c64 s32 s64 |
  | `cumprod/2` | x_0 * ... * x_t | f32 f16 bf16 |
  | `cummax/2`, `cummin/2` | the largest, the smallest so far | f32 f16 bf16 s32 s64 |
  | `linear_recurrence/3` | a_t y_(t-1) + b_t, from y = 0 | f32 f16 bf16 c64, `a` and `b` of one type |

  A tensor is an Nx tensor or `{type, shape, binary}` (`ExPhil.Native.Tensor`) of rank 1 to 4; the result has the
  shape, the type and the form of `x` (of `b`). f16 and bf16 accumulate in f32. Sums of integers wrap around. NaN and
  infinity propagate as in the sequential definition: every result from the first NaN on is NaN, in `cummax/2` and
  `cummin/2` too.

  ## Options

    * `:axis` - the axis to scan: a number (negative from the last) or an Nx tensor's axis name. The default is 1, the
      time axis of {batch, time, ...}, or 0 where the rank is 1
    * `:reverse` - `true` runs from the last element to the first (`false`)
    * `:compensated` - `cumsum/2` of floating-point numbers only: tracks the rounding error (Kahan and Neumaier), so
      that a sum of a million elements is within 2 units in the last place (`false`)
    * `:block_size` - how many elements one block of the GPU processes, a power of two from 32 to 8192; the nearest
      size that the device can hold is used. Results may differ in the last bits. The default depends on the length.
      The CPU ignores it
    * `:backend`, `:device` - where to run; see `ExPhil.Native.Device`

  A sequence gives the same bits in any batch and in every run. Every invalid argument raises `ExPhil.Native.Error`
  with its name, what was expected and what was given.
  """

  alias ExPhil.Native.{Error, NIF, Options, Queue, Tensor}

  @type tensor :: Tensor.t()

  @common [:axis, :block_size, :backend, :device]
  @one_way [:reverse | @common]
  @operations [:cumsum, :cumprod, :cummax, :cummin, :linear_recurrence]

  @doc """
  Cumulative sum, of the type and the shape of `x`, which has 1 to 4 axes: f32, f16, bf16, c64, s32 or s64. Takes the options of the
  module, and `:compensated`. Raises `ExPhil.Native.Error`.

      iex> x = {:f32, {4}, <<1.0::float-32-little, 2.0::float-32-little, 3.0::float-32-little, 4.0::float-32-little>>}
      iex> {:f32, {4}, y} = ExPhil.Native.AssociativeScan.cumsum(x, backend: :host)
      iex> for <<v::float-32-little <- y>>, do: v
      [1.0, 3.0, 6.0, 10.0]

      iex> x = {:s32, {3}, <<1::32-little, 2::32-little, 3::32-little>>}
      iex> {:s32, {3}, y} = ExPhil.Native.AssociativeScan.cumsum(x, reverse: true, backend: :host)
      iex> for <<v::32-signed-little <- y>>, do: v
      [6, 5, 3]
  """
  @spec cumsum(tensor(), keyword()) :: tensor()
  def cumsum(x, options \\ []), do: one_way(:cumsum, nil, x, options, [:compensated | @one_way])

  @doc """
  Cumulative product, of the type and the shape of `x`, which has 1 to 4 axes: f32, f16 or bf16. Takes the options of the module.
  Raises `ExPhil.Native.Error`.

      iex> x = {:f32, {3}, <<2.0::float-32-little, 3.0::float-32-little, 4.0::float-32-little>>}
      iex> {:f32, {3}, y} = ExPhil.Native.AssociativeScan.cumprod(x, backend: :host)
      iex> for <<v::float-32-little <- y>>, do: v
      [2.0, 6.0, 24.0]
  """
  @spec cumprod(tensor(), keyword()) :: tensor()
  def cumprod(x, options \\ []), do: one_way(:cumprod, nil, x, options, @one_way)

  @doc """
  The largest element so far, of the type and the shape of `x`, which has 1 to 4 axes: f32, f16, bf16, s32 or s64. Takes the options
  of the module. Raises `ExPhil.Native.Error`.

      iex> x = {:s64, {4}, <<3::64-little, 1::64-little, 5::64-little, 2::64-little>>}
      iex> {:s64, {4}, y} = ExPhil.Native.AssociativeScan.cummax(x, backend: :host)
      iex> for <<v::64-signed-little <- y>>, do: v
      [3, 3, 5, 5]
  """
  @spec cummax(tensor(), keyword()) :: tensor()
  def cummax(x, options \\ []), do: one_way(:cummax, nil, x, options, @one_way)

  @doc """
  The smallest element so far, of the type and the shape of `x`, which has 1 to 4 axes: f32, f16, bf16, s32 or s64. Takes the options
  of the module. Raises `ExPhil.Native.Error`.

      iex> x = {:s32, {4}, <<3::32-little, 1::32-little, 5::32-little, 2::32-little>>}
      iex> {:s32, {4}, y} = ExPhil.Native.AssociativeScan.cummin(x, backend: :host)
      iex> for <<v::32-signed-little <- y>>, do: v
      [3, 1, 1, 1]
  """
  @spec cummin(tensor(), keyword()) :: tensor()
  def cummin(x, options \\ []), do: one_way(:cummin, nil, x, options, @one_way)

  @doc """
  h_t = a_t h_(t-1) + b_t, from h = 0. `a` and `b` have one shape, of 1 to 4 axes, and one type, f32, f16, bf16 or c64; both are complex
  or neither is. Returns h, of their shape and type. Takes the options of the module. Raises `ExPhil.Native.Error`.

      iex> half = {:f32, {3}, :binary.copy(<<0.5::float-32-little>>, 3)}
      iex> one = {:f32, {3}, :binary.copy(<<1.0::float-32-little>>, 3)}
      iex> {:f32, {3}, h} = ExPhil.Native.AssociativeScan.linear_recurrence(half, one, backend: :host)
      iex> for <<v::float-32-little <- h>>, do: v
      [1.0, 1.5, 1.75]
  """
  @spec linear_recurrence(tensor(), tensor(), keyword()) :: tensor()
  def linear_recurrence(a, b, options \\ []), do: one_way(:linear_recurrence, a, b, options, @one_way)

  @doc """
  `{causal, anti_causal}`: an operation from the first element to the last, and from the last to the first, in one
  launch. `:op` names it: `:cumsum` (the default), `:cumprod`, `:cummax`, `:cummin`, or `:linear_recurrence` with its
  `a` under `:a`. Both results have the type and the shape of `x`. Takes the other options but `:reverse`. Raises `ExPhil.Native.Error`.

      iex> x = {:s32, {3}, <<1::32-little, 2::32-little, 3::32-little>>}
      iex> {{:s32, {3}, y}, {:s32, {3}, z}} = ExPhil.Native.AssociativeScan.bidirectional(x, backend: :host)
      iex> {for(<<v::32-little <- y>>, do: v), for(<<v::32-little <- z>>, do: v)}
      {[1, 3, 6], [6, 5, 3]}
  """
  @spec bidirectional(tensor(), keyword()) :: {tensor(), tensor()}
  def bidirectional(x, options \\ []) do
    options = read!(options, [:op, :a, :compensated | @common])
    {form, %{y: y, y_reverse: y_reverse}} = run!(options.op, options.a, x, %{options | direction: :both})
    {Tensor.unpack(y, form), Tensor.unpack(y_reverse, form)}
  end

  @doc """
  The gradient of a scan from `dy`, the gradient of a real loss by its result: dx of cumsum, cumprod, cummax and cummin,
  `{da, db}` of the linear recurrence, all of the type and the shape of `x`. Raises `ExPhil.Native.Error`.

      grad(:cumsum, dy, x, options)
      grad(:linear_recurrence, dy, a, b, options)

  `dy` and the result have the shape and the type of `x`; integers have no gradient. Takes the options of the scan
  (`:axis :reverse :block_size :backend :device`, and `:compensated` for cumsum), and

    * `:bidirectional` - `true` is the gradient of `bidirectional/2`: `dy` is `{dy_causal, dy_anti_causal}` (`false`)

  cumprod is exact where elements are 0. In cummax and cummin the first of equal extrema receives the gradient of all
  results that equal it; from the first NaN on, the NaN is the extremum. The gradient of a complex tensor is dL/dRe +
  i dL/dIm. Halves are computed in f32 and rounded once. The scans run on the backend, the elementwise work between
  them on the CPU.

      iex> f32 = fn list -> {:f32, {length(list)}, for(v <- list, into: <<>>, do: <<v::float-32-little>>)} end
      iex> values = fn {:f32, _, binary} -> for(<<v::float-32-little <- binary>>, do: v) end
      iex> dy = f32.([1.0, 1.0, 1.0])
      iex> values.(ExPhil.Native.AssociativeScan.grad(:cumprod, dy, f32.([2.0, 0.0, 3.0]), backend: :host))
      [1.0, 8.0, 0.0]
      iex> half = f32.([0.5, 0.5, 0.5])
      iex> {da, db} = ExPhil.Native.AssociativeScan.grad(:linear_recurrence, dy, half, dy, backend: :host)
      iex> {values.(da), values.(db)}
      {[0.0, 1.5, 1.5], [1.75, 1.5, 1.0]}
  """
  @spec grad(atom(), tensor() | {tensor(), tensor()}, tensor(), keyword() | tensor()) ::
          tensor() | {tensor(), tensor()}
  def grad(op, dy, x, options \\ [])
  def grad(:linear_recurrence, dy, a, b), do: grad(:linear_recurrence, dy, a, b, [])
  def grad(op, dy, x, options), do: op |> grad!(dy, nil, x, options) |> elem(0)

  @doc """
  The gradient of `linear_recurrence/3`, `op` is `:linear_recurrence`: `{da, db}`, of the type and the shape of `a` and `b`, as `dy`, the
  gradient of a real loss by h. Options and errors are those of `grad/4`.
  """
  @spec grad(:linear_recurrence, tensor() | {tensor(), tensor()}, tensor(), tensor(), keyword()) ::
          {tensor(), tensor()}
  def grad(op, dy, a, b, options)

  def grad(:linear_recurrence, dy, a, b, options) do
    {db, da} = grad!(:linear_recurrence, dy, a, b, options)
    {da, db}
  end

  defp grad!(op, dy, a, x, options) do
    Options.one_of([op: op], :op, @operations)
    options = read!(options, [:bidirectional, :compensated | @one_way])
    {dy, dy_reverse} = incoming!(dy, options)
    {backend, device} = options.place
    {x, form} = Tensor.pack!(x, if(op == :linear_recurrence, do: "b", else: "x"))
    a = if op == :linear_recurrence, do: a |> Tensor.pack!("a") |> elem(0)
    direction = if options.bidirectional, do: :both, else: options.direction
    request = request(%{options | direction: direction}, axis!(options.axis, x, form))
    arguments = [backend, device, op, dy, dy_reverse, a, x, request]
    name = if op == :linear_recurrence, do: :linear_recurrence_grad, else: :associative_grad

    case Queue.run(&apply(NIF, name, arguments ++ [&1])) do
      {:ok, %{dx: dx, da: da}} -> {Tensor.unpack(dx, form), da && Tensor.unpack(da, form)}
      {:error, reason} -> raise Error.from_nif(reason)
    end
  end

  defp incoming!(_dy, %{bidirectional: true, direction: :reverse}),
    do: raise(Error.invalid(":reverse", "left out where :bidirectional is true", true))

  defp incoming!({dy, dy_reverse}, %{bidirectional: true}),
    do: {dy |> Tensor.pack!("dy") |> elem(0), dy_reverse |> Tensor.pack!("dy_reverse") |> elem(0)}

  defp incoming!(dy, %{bidirectional: true}),
    do: raise(Error.invalid("dy", "{dy_causal, dy_anti_causal} where :bidirectional is true", dy))

  defp incoming!(dy, _options), do: {dy |> Tensor.pack!("dy") |> elem(0), nil}

  defp one_way(op, a, x, options, known) do
    {form, %{y: y}} = run!(op, a, x, read!(options, known))
    Tensor.unpack(y, form)
  end

  # ---- options ---------------------------------------------------------------------------------------------

  defp read!(options, known), do: Options.read!(options, known, &values/1)

  defp values(options) do
    %{
      op: Options.one_of(options, :op, @operations),
      a: options[:a],
      axis: options[:axis],
      direction: if(Options.boolean(options, :reverse, false), do: :reverse, else: :forward),
      bidirectional: Options.boolean(options, :bidirectional, false),
      compensated: Options.boolean(options, :compensated, false),
      block_size: block_size(options),
      place: Options.place(options)
    }
  end

  # 0 lets the backend choose. The NIF checks the range.
  defp block_size(options) do
    if options[:block_size] == nil, do: 0, else: Options.positive_integer(options, :block_size, 0)
  end

  defp axis!(nil, {_type, shape, _binary}, _form) when is_tuple(shape), do: min(1, tuple_size(shape) - 1)
  defp axis!(nil, _tensor, _form), do: 0
  defp axis!(axis, _tensor, _form) when is_integer(axis), do: axis

  defp axis!(name, _tensor, {:nx, names}) when is_atom(name) do
    Enum.find_index(names, &(&1 == name)) ||
      raise Error.invalid(":axis", "an axis of the tensor, whose names are #{inspect(names)}", name)
  end

  defp axis!(other, _tensor, _form),
    do: raise(Error.invalid(":axis", "a number, or the name of an Nx tensor's axis", other))

  # ---- the call --------------------------------------------------------------------------------------------

  defp run!(op, a, x, options) do
    {backend, device} = options.place
    {x, form} = Tensor.pack!(x, if(op == :linear_recurrence, do: "b", else: "x"), nil, options.place)
    a = if a != nil, do: a |> Tensor.pack!("a", nil, options.place) |> elem(0)
    request = request(options, axis!(options.axis, x, form))

    case Queue.run(&call(op, backend, device, a, x, request, &1)) do
      {:ok, results} -> {form, results}
      {:error, reason} -> raise Error.from_nif(reason)
    end
  end

  defp request(options, axis),
    do: options |> Map.take([:direction, :compensated, :block_size]) |> Map.put(:axis, axis)

  defp call(:linear_recurrence = op, backend, device, a, b, request, ref),
    do: NIF.linear_recurrence(backend, device, op, a, b, request, ref)

  defp call(op, backend, device, a, x, request, ref),
    do: NIF.associative_scan(backend, device, op, a, x, request, ref)
end
