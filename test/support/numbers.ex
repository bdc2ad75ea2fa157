defmodule ExPhil.Native.TestSupport.Numbers do
  @moduledoc false
  # Tensors as lists and back, errors against a reference, random inputs from a seed, and difference quotients.

  import ExUnit.Assertions

  @doc "A tensor's elements as floats (complex: real and imaginary in turn)."
  def floats({:f32, _, binary}), do: for(<<v::float-32-little <- binary>>, do: v)
  def floats({:c64, shape, binary}), do: floats({:f32, shape, binary})
  def floats({:f64, _, binary}), do: for(<<v::float-64-little <- binary>>, do: v)
  def floats({:bf16, _, binary}), do: for(<<v::16-little <- binary>>, do: bf16(v))
  def floats({:f16, _, binary}), do: for(<<v::float-16-little <- binary>>, do: v)
  def floats(binary) when is_binary(binary), do: floats({:f32, nil, binary})

  defp bf16(bits) do
    <<v::float-32-big>> = <<bits::16-big, 0::16>>
    v
  end

  def f32(list), do: for(v <- list, into: <<>>, do: <<v::float-32-little>>)
  def f32(list, shape), do: {:f32, shape, f32(list)}
  def f16(list, shape), do: {:f16, shape, for(v <- list, into: <<>>, do: <<v::float-16-little>>)}

  @doc "Truncated, not rounded: the result is a bf16, which is enough for a test input."
  def bf16(list, shape) do
    {:bf16, shape,
     for(
       v <- list,
       into: <<>>,
       do:
         (
           <<high::16-big, _::16>> = <<v::float-32-big>>
           <<high::16-little>>
         )
     )}
  end

  @doc "||out - ref|| / ||ref||, or ||out|| where the reference is zero."
  def relative_error(out, ref) do
    out = floats(out)
    ref = floats(ref)
    true = length(out) == length(ref)
    difference = out |> Enum.zip_with(ref, &((&1 - &2) * (&1 - &2))) |> Enum.sum() |> :math.sqrt()
    norm = ref |> Enum.map(&(&1 * &1)) |> Enum.sum() |> :math.sqrt()
    if norm == 0.0, do: difference, else: difference / norm
  end

  def size(shape), do: shape |> Tuple.to_list() |> Enum.product()

  @doc "Uniform in [min, max), from a seed."
  def uniform(seed, shape, min \\ -1.0, max \\ 1.0) do
    state = :rand.seed_s(:exsss, {seed, 17, 4711})

    {list, _} =
      Enum.map_reduce(List.duplicate(0, size(shape)), state, fn _, state ->
        {v, state} = :rand.uniform_s(state)
        {min + (max - min) * v, state}
      end)

    f32(list, shape)
  end

  @doc "Rows `from` to `from + count` of a {rows, columns} tensor or of an f32 binary with that many columns."
  def rows({:f32, {_, columns}, binary}, from, count),
    do: {:f32, {count, columns}, binary_part(binary, 4 * columns * from, 4 * columns * count)}

  def row({:f32, {_, columns}, binary}, index), do: binary_part(binary, 4 * columns * index, 4 * columns)

  @doc "Steps `from` to `from + count` of an f32 tensor {batch, seq, ...}."
  def steps({:f32, shape, binary}, from, count) do
    [batch, seq | rest] = Tuple.to_list(shape)
    row = Enum.product(rest) * 4
    parts = for b <- 0..(batch - 1), do: binary_part(binary, (b * seq + from) * row, count * row)
    {:f32, List.to_tuple([batch, count | rest]), IO.iodata_to_binary(parts)}
  end

  @doc "The sum of the products of two tensors' elements: a loss whose gradient by the second is the first."
  def dot(a, b), do: floats(a) |> Enum.zip_with(floats(b), &(&1 * &2)) |> Enum.sum()

  @doc "The difference quotient of `loss`, a function of tensors by name, by element `at` of the operand `name`."
  def difference(operands, name, at, loss) do
    {:f32, shape, binary} = operands[name]

    [ahead, behind] =
      for by <- [0.015625, -0.015625] do
        <<before::binary-size(at * 4), v::float-32-little, rest::binary>> = binary
        bumped = {:f32, shape, <<before::binary, v + by::float-32-little, rest::binary>>}
        loss.(Keyword.replace!(operands, name, bumped))
      end

    (ahead - behind) / 0.03125
  end

  @doc "Asserts that two tensors have one shape and that their elements differ by at most `limit`."
  def assert_close(out, expected, limit) do
    assert elem(out, 1) == elem(expected, 1)
    for {a, b} <- Enum.zip(floats(out), floats(expected)), do: assert_in_delta(a, b, limit)
  end
end
