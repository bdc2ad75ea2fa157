defmodule ExPhil.Native.Tools.Benchmark.Arrays do
  @moduledoc false
  # The suites associative and transfer. A transfer is the minimum work of a call on a tensor: read it from
  # the VM, add its first half to its second, and write as many bytes back.

  alias ExPhil.Native.AssociativeScan
  alias ExPhil.Native.Tools.Benchmark.{Case, Inputs}
  alias ExPhil.Native.Tools.Reference

  @lengths [512, 1024, 2048, 4096, 8192]
  @kilobytes [64, 256, 1024, 4096, 16_384, 65_536]

  @doc "The cases of one suite."
  @spec cases(String.t(), map()) :: [Case.t()]
  def cases("associative", context) do
    lengths = if context.quick, do: Enum.take(@lengths, 2), else: @lengths

    for op <- [:cumsum, :linear_recurrence], length <- lengths do
      %{
        associative("#{op} #{length}", op, {4, length, 512}, context)
        | line: {to_string(op), length},
          axes: ["outer", "length", "inner"]
      }
    end
  end

  def cases("transfer", context) do
    sizes = if context.quick, do: Enum.take(@kilobytes, 3), else: @kilobytes

    for kilobytes <- sizes do
      columns = div(kilobytes * 1024, 2 * Case.size(context.dtype))
      sized = associative(readable(kilobytes), :cumsum, {1, 2, columns}, context)
      %{sized | suite: "transfer", line: {"there and back", kilobytes}}
    end
  end

  defp readable(kilobytes) when kilobytes < 1024, do: "#{kilobytes} KiB"
  defp readable(kilobytes), do: "#{div(kilobytes, 1024)} MiB"

  defp associative(name, op, {outer, length, inner} = shape, context) do
    elements = outer * length * inner
    bytes = Case.size(context.dtype) * elements
    call = &call(op, &1, context.backend)

    %Case{
      suite: "associative",
      name: name,
      axes: ["outer", "length", "inner"],
      shape: [outer, length, inner],
      operations: if(op == :linear_recurrence, do: 2, else: 1) * elements,
      bytes: %{in: if(op == :linear_recurrence, do: 2, else: 1) * bytes, out: bytes, resident: 0},
      inputs: &inputs(&1, op, shape, context.dtype),
      call: call,
      check: fn {a, x} = input ->
        {theirs, nanoseconds} = Reference.associative!(op, a, x, 1)
        %{ours: call.(input), theirs: theirs, nanoseconds: nanoseconds, fraction: 1.0}
      end,
      tolerance: Case.tolerance(context.dtype)
    }
  end

  defp inputs(seed, op, shape, type) do
    a = if op == :linear_recurrence, do: Inputs.uniform(type, shape, seed, {0.5, 0.99})
    {a, Inputs.uniform(type, shape, seed + 1, {-1.0, 1.0})}
  end

  defp call(:cumsum, {nil, x}, backend), do: AssociativeScan.cumsum(x, axis: 1, backend: backend)

  defp call(:linear_recurrence, {a, b}, backend),
    do: AssociativeScan.linear_recurrence(a, b, axis: 1, backend: backend)
end
