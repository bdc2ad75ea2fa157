defmodule ExPhil.Native.SelectiveScan.Operands do
  @moduledoc false
  # The tensors of a scan for the native library. `x` and `a` determine the type of the others; an Nx tensor
  # of another numeric type is cast, as in ExPhil's own module. A {type, shape, binary} is passed unchanged,
  # and refused where its type is wrong.

  alias ExPhil.Native.{Device, Options, SharedMemory, Tensor}

  # Operands with a row for each step have x's type; others are f32, or c64 with a complex a.
  @rows ["dy", "dt", ":z"]
  @complex ["b", "c", "state", "states", ":initial_state", ":d_final_state"]

  @type pack :: (nil | Tensor.t(), String.t() -> nil | Tensor.packed())

  @doc "x, a, the form of the results, and a function that packs each other operand by its name, for a call at `place`."
  @spec pack!(Tensor.t(), Tensor.t(), SharedMemory.place()) ::
          {Tensor.packed(), Tensor.packed(), Tensor.form(), pack()}
  def pack!(x, a, place) do
    {x, form} = Tensor.pack!(x, "x", [:f32, :f16, :bf16], place)
    {a, _} = Tensor.pack!(a, "a", [:f32, :c64], place)
    {x, a, form, &pack!(&1, &2, {elem(x, 0), elem(a, 0)}, place)}
  end

  @doc "Where a scan or its gradient runs: one device is its index."
  @spec place(keyword()) :: {Device.backend(), :all | non_neg_integer() | [non_neg_integer()]}
  def place(options) do
    case Options.places(options) do
      {backend, [device]} -> {backend, device}
      places -> places
    end
  end

  @doc "Where the tensors' memory may be read as it is: not by several devices."
  @spec memory_place({Device.backend(), :all | non_neg_integer() | [non_neg_integer()]}) ::
          SharedMemory.place()
  def memory_place({_backend, device} = place) when is_integer(device), do: place
  def memory_place(_places), do: {:host, 0}

  # Options are optional, arguments are not.
  defp pack!(nil, ":" <> _, _types, _place), do: nil

  defp pack!(tensor, name, {row, weight}, place),
    do: tensor |> Tensor.pack!(name, [type(name, row, weight)], place) |> elem(0)

  defp type(name, row, _weight) when name in @rows, do: row
  defp type(name, _row, :c64) when name in @complex, do: :c64
  defp type(name, row, _weight) when name in ["b", "c"], do: row
  defp type(_name, _row, _weight), do: :f32
end
