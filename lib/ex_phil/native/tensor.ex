defmodule ExPhil.Native.Tensor do
  @moduledoc """
  The two forms of a tensor that this library takes and returns: `{type, shape, binary}` and, where the user has
  Nx, `%Nx.Tensor{}`.

  The binary is that of `Nx.to_binary/1`: row-major, little-endian. Scans, layers and policies take the types
  `:f32 :f16 :bf16 :c64`, as each call says; `ExPhil.Native.AssociativeScan` takes `:s32` and `:s64` too, and
  `ExPhil.Native.SelectiveScan` casts Nx tensors of other numeric types. A result has the form of the call's first
  tensor argument. An Nx result is made with `Nx.from_binary/2`, so it is on Nx's default backend. Names of axes are kept where an
  axis keeps its meaning. Vectorized tensors are refused: `Nx.devectorize/2` them first.

  The elements of an Nx tensor are copied to host memory. With `config :exphil_native, share_memory: true` the scans, steps and
  gradients of `ExPhil.Native.SelectiveScan` and the scans of `ExPhil.Native.AssociativeScan` read tensors of EXLA's CUDA backend
  in device memory, where the call runs on CUDA and Nx has `Nx.to_pointer/2`. Do not deallocate or donate such a tensor
  while the call runs. Results are copied as always. This was tested with a substitute for EXLA's backend, never with EXLA
  itself, and is off by default.
  """

  import Bitwise

  alias ExPhil.Native.{Error, Safetensors, SharedMemory}

  @type type :: :f32 | :f16 | :bf16 | :c64 | :f64 | :s32 | :s64
  @type plain :: {type(), shape :: tuple(), binary()}
  # Nx.Tensor.t() where Nx is available.
  @type t :: plain() | struct()

  # As the native library takes it: with a place to `pack/4` the elements may be on a device.
  @typedoc false
  @type packed :: plain() | {type(), tuple(), SharedMemory.elements()}
  @typedoc false
  @type form :: :plain | {:nx, names :: [atom()]}

  # The library compiles, loads and runs without Nx: these calls are reached only with an Nx tensor.
  @compile {:no_warn_undefined, Nx}

  # f64 is accepted here, so that the call that refuses it can name the types that it supports.
  @types %{
    {:f, 32} => :f32,
    {:f, 16} => :f16,
    {:bf, 16} => :bf16,
    {:c, 64} => :c64,
    {:f, 64} => :f64,
    {:s, 32} => :s32,
    {:s, 64} => :s64
  }
  @nx_types Map.new(@types, fn {nx, type} -> {type, nx} end)

  @doc "Whether Nx is available, so that calls take and return its tensors."
  @spec nx?() :: boolean()
  def nx?, do: Code.ensure_loaded?(Nx)

  @doc """
  A tensor of numbers in lists: a list is an axis, and all lists of an axis are as long. `type` is one of `:f32 :f64 :f16 :bf16 :s32
  :s64`. Of a number alone it makes a tensor without axes. Raises `ExPhil.Native.Error` for anything else.

      iex> ExPhil.Native.Tensor.from_list([[1, 2], [3, 4]], :s32)
      {:s32, {2, 2}, <<1::32-little, 2::32-little, 3::32-little, 4::32-little>>}
  """
  @spec from_list(list() | number(), type()) :: plain()
  def from_list(list, type \\ :f32)

  def from_list(list, type) when type in [:f32, :f64, :f16, :bf16, :s32, :s64] do
    dims = dims(list)
    elements = for number <- flat(list, dims), into: <<>>, do: element!(number, type)
    {type, List.to_tuple(dims), elements}
  end

  def from_list(_list, type) do
    raise Error.invalid("type", "one of :f32, :f64, :f16, :bf16, :s32 and :s64", type)
  end

  defp dims([first | _] = list) when is_list(list), do: [length(list) | dims(first)]
  defp dims([]), do: [0]
  defp dims(_number), do: []

  defp flat(list, [count | dims]) when is_list(list) and length(list) == count,
    do: Enum.flat_map(list, &flat(&1, dims))

  defp flat(number, []) when is_number(number), do: [number]

  defp flat(other, _dims),
    do: raise(Error.invalid("list", "lists of numbers, those of an axis as long as each other", other))

  # A number that the type does not hold is not stored as another one.
  defp element!(v, :s32) when v in -0x80000000..0x7FFFFFFF, do: <<v::signed-32-little>>
  defp element!(v, :s64) when v in -0x8000000000000000..0x7FFFFFFFFFFFFFFF, do: <<v::signed-64-little>>

  defp element!(v, type) when type in [:f64, :f32, :f16, :bf16] do
    with :error <- float(v, type), do: not_held(v, type)
  rescue
    # Where a number is too large the VM raises, or gives an infinity, which no pattern of a float matches.
    ArgumentError -> not_held(v, type)
    ArithmeticError -> not_held(v, type)
  end

  defp element!(v, type), do: not_held(v, type)

  defp not_held(v, type), do: raise(Error.invalid("list", "of numbers that #{type} holds", v))

  defp float(v, :f64), do: finite(<<v::float-64>>)
  defp float(v, :f32), do: finite(<<v::float-32>>)
  defp float(v, :f16), do: finite(<<v::float-16>>)

  # The upper half of f32, rounded to the nearest, to even where two are as near.
  defp float(v, :bf16) do
    <<bits::32>> = <<v::float-32>>
    upper = (bits + 0x7FFF + (bits >>> 16 &&& 1)) >>> 16
    if (upper &&& 0x7FFF) >= 0x7F80, do: :error, else: <<upper::16-little>>
  end

  defp finite(<<v::float-64>>), do: <<v::float-64-little>>
  defp finite(<<v::float-32>>), do: <<v::float-32-little>>
  defp finite(<<v::float-16>>), do: <<v::float-16-little>>
  defp finite(_infinite), do: :error

  @doc """
  The numbers of a tensor as lists, one for each axis: the inverse of `from_list/2`. What is not finite is `:nan`, `:infinity` or
  `:neg_infinity`, as in `Nx.to_list/1`, and a complex number is `{re, im}`.

      iex> ExPhil.Native.Tensor.to_list({:f32, {2, 1}, <<1.5::float-32-little, -2.0::float-32-little>>})
      [[1.5], [-2.0]]
  """
  @spec to_list(t()) :: list() | number() | :nan | :infinity | :neg_infinity | {number(), number()}
  def to_list(tensor) do
    {{type, shape, binary} = packed, _form} = pack!(tensor, "tensor")

    if not Safetensors.sound?(packed, Map.keys(@nx_types)),
      do: raise(Error.invalid("tensor", "an Nx tensor or {type, shape, binary} that agree", tensor))

    binary |> numbers(type) |> nested(Tuple.to_list(shape))
  end

  defp nested([number], []), do: number
  defp nested(numbers, [_count]), do: numbers

  defp nested(numbers, [count | dims]) do
    case Enum.product(dims) do
      0 -> List.duplicate(nested([], dims), count)
      size -> numbers |> Enum.chunk_every(size) |> Enum.map(&nested(&1, dims))
    end
  end

  defp numbers(binary, :s32), do: for(<<v::signed-32-little <- binary>>, do: v)
  defp numbers(binary, :s64), do: for(<<v::signed-64-little <- binary>>, do: v)
  defp numbers(binary, :f64), do: for(<<bits::64-little <- binary>>, do: number(<<bits::64>>, 11))
  defp numbers(binary, :f32), do: for(<<bits::32-little <- binary>>, do: number(<<bits::32>>, 8))
  defp numbers(binary, :f16), do: for(<<bits::16-little <- binary>>, do: number(<<bits::16>>, 5))
  defp numbers(binary, :bf16), do: for(<<bits::16-little <- binary>>, do: number(<<bits::16, 0::16>>, 8))

  defp numbers(binary, :c64),
    do: for(<<re::32-little, im::32-little <- binary>>, do: {number(<<re::32>>, 8), number(<<im::32>>, 8)})

  # From the big-endian bits of a float with so many bits of exponent. A pattern of a float matches finite
  # ones alone.
  defp number(<<v::float-32>>, 8), do: v
  defp number(<<v::float-64>>, 11), do: v
  defp number(<<v::float-16>>, 5), do: v

  defp number(bits, exponent) do
    case bits do
      <<0::1, _::size(exponent), 0::size(bit_size(bits) - exponent - 1)>> -> :infinity
      <<1::1, _::size(exponent), 0::size(bit_size(bits) - exponent - 1)>> -> :neg_infinity
      _ -> :nan
    end
  end

  @doc false
  # {type, shape, binary}, and the form of the result. The NIF checks shape and size. place: of a call that
  # reads device memory too, as `ExPhil.Native.Device.choose/2` returns it.
  @spec pack(term(), String.t(), String.t(), nil | SharedMemory.place()) ::
          {:ok, packed(), form()} | {:error, Error.t()}
  def pack(tensor, argument, expected \\ "an Nx tensor or {type, shape, binary}", place \\ nil)
  def pack({_type, _shape, _elements} = tensor, _argument, _expected, _place), do: {:ok, tensor, :plain}

  def pack(%{__struct__: Nx.Tensor} = tensor, argument, _expected, place) do
    with :ok <- not_vectorized(tensor, argument),
         {:ok, type} <- type(tensor, argument),
         {:ok, elements} <- elements(tensor, argument, place) do
      {:ok, {type, tensor.shape, elements}, {:nx, tensor.names}}
    end
  end

  def pack(other, argument, expected, _place), do: {:error, Error.invalid(argument, expected, other)}

  defp elements(tensor, argument, place) do
    with :unshared <- SharedMemory.elements(tensor, argument, place), do: {:ok, Nx.to_binary(tensor)}
  end

  @doc false
  # As `pack/4`, but raises the error, and casts an Nx tensor of another type to the first of `types` where
  # they are given. A complex tensor is not cast to a real type, which would drop its imaginary part.
  @spec pack!(term(), String.t(), nil | [atom()], nil | SharedMemory.place()) :: {packed(), form()}
  def pack!(tensor, argument, types \\ nil, place \\ nil) do
    case tensor |> cast(types) |> pack(argument, "an Nx tensor or {type, shape, binary}", place) do
      {:ok, packed, form} -> {packed, form}
      {:error, error} -> raise error
    end
  end

  defp cast(%{__struct__: Nx.Tensor} = tensor, [type | _] = types),
    do: if(castable?(tensor.type, types), do: Nx.as_type(tensor, @nx_types[type]), else: tensor)

  defp cast(tensor, _types), do: tensor

  # A type that is not in @nx_types is from a plain tensor, which is refused later.
  defp castable?({kind, _} = from, [type | _] = types) do
    complex? = kind == :c and type != :c64
    Map.has_key?(@nx_types, type) and from not in Enum.map(types, &@nx_types[&1]) and not complex?
  end

  @doc false
  # names: maps the argument's axis names to the result's, or nil for none.
  @spec unpack(plain(), form(), ([atom()] -> [atom()])) :: t()
  def unpack(tensor, form, names \\ & &1)
  def unpack(tensor, :plain, _names), do: tensor

  def unpack({type, shape, binary}, {:nx, given}, names) do
    flat = Nx.from_binary(binary, Map.fetch!(@nx_types, type))
    names = names.(given)
    options = if length(names) == tuple_size(shape), do: [names: names], else: []
    Nx.reshape(flat, shape, options)
  end

  defp not_vectorized(tensor, argument) do
    case Map.get(tensor, :vectorized_axes, []) do
      [] ->
        :ok

      axes ->
        message = "#{argument} is vectorized over #{inspect(Keyword.keys(axes))}; Nx.devectorize it first"
        {:error, Error.new(:invalid_argument, argument, message)}
    end
  end

  defp type(tensor, argument) do
    case Map.fetch(@types, tensor.type) do
      {:ok, type} -> {:ok, type}
      :error -> {:error, Error.invalid(argument, "of type f32, f16, bf16, c64, s32 or s64", tensor.type)}
    end
  end
end
