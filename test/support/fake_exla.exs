# A substitute for EXLA's backend beside fake_nx.exs: tensors at addresses of device memory that the test gives. It prints
# what is asked of a tensor, which has this program's word for its elements.

defmodule EXLA.Backend do
  defstruct [:buffer]

  # An address, or a term that to_pointer/1 answers with or raises.
  def tensor(pointer, type, shape, client_name \\ :cuda) do
    names = List.duplicate(nil, tuple_size(shape))
    buffer = %{pointer: pointer, client_name: client_name}
    %Nx.Tensor{data: %__MODULE__{buffer: buffer}, type: type, shape: shape, names: names}
  end

  def to_pointer(%{data: %{buffer: %{pointer: {:raise, message}}}}), do: raise(message)
  def to_pointer(%{data: %{buffer: %{pointer: pointer}}}), do: pointer

  def slice(%{shape: shape} = tensor, starts, lengths) do
    true = {length(starts), length(lengths)} == {tuple_size(shape), tuple_size(shape)}
    true = Enum.all?(starts, &(&1 == 0)) and Enum.all?(lengths, &(&1 == 1))
    %{tensor | data: {:binary, <<0::32>>}, shape: List.to_tuple(lengths)}
  end

  def to_binary(%{shape: shape}) do
    IO.puts("copied")
    :binary.copy(<<0::32>>, Tuple.product(shape))
  end
end
