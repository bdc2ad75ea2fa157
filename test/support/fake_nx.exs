# A substitute for Nx, for machines without it: the functions and the struct that ExPhil.Native.Tensor uses, with Nx's
# form of types, names and vectorized axes. tensor_test.exs compiles it where Nx is absent.

defmodule Nx.Tensor do
  defstruct [:data, :type, :shape, names: [], vectorized_axes: []]
end

defmodule Nx do
  @sizes %{
    {:f, 32} => 4,
    {:f, 16} => 2,
    {:bf, 16} => 2,
    {:c, 64} => 8,
    {:f, 64} => 8,
    {:s, 32} => 4,
    {:u, 8} => 1
  }

  @reals %{{:f, 64} => :f64, {:f, 32} => :f32, {:s, 32} => :s32, {:u, 8} => :u8}

  # Between real types of whole bytes.
  def as_type(%Nx.Tensor{type: type} = tensor, type), do: tensor

  def as_type(%Nx.Tensor{data: {:binary, binary}, type: from} = tensor, to) do
    values = decode(@reals[from], binary)
    %{tensor | type: to, data: {:binary, for(v <- values, into: <<>>, do: encode(@reals[to], v))}}
  end

  defp decode(:f64, binary), do: for(<<v::float-64-little <- binary>>, do: v)
  defp decode(:f32, binary), do: for(<<v::float-32-little <- binary>>, do: v)
  defp decode(:s32, binary), do: for(<<v::signed-32-little <- binary>>, do: v)
  defp decode(:u8, binary), do: for(<<v <- binary>>, do: v)

  defp encode(:f64, v), do: <<v::float-64-little>>
  defp encode(:f32, v), do: <<v::float-32-little>>
  defp encode(:s32, v), do: <<trunc(v)::signed-32-little>>
  defp encode(:u8, v), do: <<trunc(v)>>

  def to_binary(%Nx.Tensor{data: {:binary, binary}}), do: binary
  def to_binary(%Nx.Tensor{data: %backend{}} = tensor), do: backend.to_binary(tensor)

  # Of tensors with a backend of their own (fake_exla.exs).
  def to_pointer(%Nx.Tensor{data: %backend{}} = tensor, mode: :local), do: backend.to_pointer(tensor)

  def slice(%Nx.Tensor{data: %backend{}} = tensor, starts, lengths),
    do: backend.slice(tensor, starts, lengths)

  # Nx has no empty tensors.
  def from_binary(binary, type) when byte_size(binary) > 0 do
    %Nx.Tensor{
      data: {:binary, binary},
      type: type,
      shape: {div(byte_size(binary), @sizes[type])},
      names: [nil]
    }
  end

  def reshape(%Nx.Tensor{} = tensor, shape, options \\ []) do
    dims = Tuple.to_list(shape)
    true = Enum.product(dims) == Enum.product(Tuple.to_list(tensor.shape))
    names = Keyword.get(options, :names, Enum.map(dims, fn _ -> nil end))
    true = length(names) == length(dims)
    %{tensor | shape: shape, names: names}
  end
end
