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

  alias ExPhil.Native.{Error, SharedMemory}

  @type type :: :f32 | :f16 | :bf16 | :c64 | :s32 | :s64
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

  @doc "Whether Nx is available."
  @spec nx?() :: boolean()
  def nx?, do: Code.ensure_loaded?(Nx)

  @doc false
  # {type, shape, binary}, and the form of the result. The NIF checks shape and size. place: of a call that reads
  # device memory too, as `ExPhil.Native.Device.choose/2` returns it.
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
  # As `pack/4`, but raises the error, and casts an Nx tensor of another type to the first of `types` where they are
  # given. A complex tensor is not cast to a real type, which would drop its imaginary part.
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
