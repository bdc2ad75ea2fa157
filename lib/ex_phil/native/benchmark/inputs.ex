defmodule ExPhil.Native.Benchmark.Inputs do
  @moduledoc false
  # Random tensors for benchmarks, by native code: 16 million numbers take milliseconds instead of seconds.

  alias ExPhil.Native.{Error, NIF}

  @doc "Uniform in [min, max); the seed decides every number."
  @spec uniform(atom(), tuple(), integer(), {float(), float()}) :: {atom(), tuple(), binary()}
  def uniform(type, shape, seed, range) do
    count = shape |> Tuple.to_list() |> Enum.product()

    case NIF.random_binary(type, count, seed, range) do
      {:ok, binary} -> {type, shape, binary}
      {:error, reason} -> raise Error.from_nif(reason)
    end
  end

  @doc "Tensor `binary`'s first `count` rows of the first axis."
  @spec first({atom(), tuple(), binary()}, pos_integer()) :: {atom(), tuple(), binary()}
  def first({type, shape, binary}, count) do
    bytes = div(byte_size(binary), elem(shape, 0)) * count
    {type, put_elem(shape, 0, count), binary_part(binary, 0, bytes)}
  end
end
