defmodule ExPhil.Native.Tools.Benchmark.Inputs do
  @moduledoc false
  # Random tensors for benchmarks from native code: 16 million numbers take milliseconds instead of seconds.

  alias ExPhil.Native.Tools.Reference

  @doc "Uniform in [min, max), determined by the seed."
  @spec uniform(atom(), tuple(), integer(), {float(), float()}) :: {atom(), tuple(), binary()}
  def uniform(type, shape, seed, range) do
    count = shape |> Tuple.to_list() |> Enum.product()

    {type, shape, Reference.random_binary!(type, count, seed, range)}
  end

  @doc "Tensor `binary`'s first `count` rows of the first axis."
  @spec first({atom(), tuple(), binary()}, pos_integer()) :: {atom(), tuple(), binary()}
  def first({type, shape, binary}, count) do
    bytes = div(byte_size(binary), elem(shape, 0)) * count
    {type, put_elem(shape, 0, count), binary_part(binary, 0, bytes)}
  end
end
