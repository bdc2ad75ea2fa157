defmodule ExPhil.Native.Tools.Benchmark.Statistics do
  @moduledoc false
  # Summaries of measured times, and the relative error between two tensors.

  alias ExPhil.Native.Tools.Player.Report

  @type summary :: %{
          runs: pos_integer(),
          mean_us: float(),
          stddev_us: float(),
          min_us: float(),
          p50_us: float(),
          p90_us: float(),
          p99_us: float(),
          max_us: float()
        }

  # Enough to detect a wrong result, few enough to take milliseconds.
  @samples 10_000

  @doc """
  Summarises nanoseconds in microseconds. Percentiles are by nearest rank: p99 of fewer than 100 runs is the slowest
  run. The standard deviation is the sample's (n - 1), and 0 for a single run.

      iex> summary = ExPhil.Native.Tools.Benchmark.Statistics.summarise([1000, 2000, 3000, 6000])
      iex> {summary.mean_us, summary.p50_us, summary.p99_us, summary.runs}
      {3.0, 2.0, 6.0, 4}
  """
  @spec summarise([non_neg_integer(), ...]) :: summary()
  def summarise(nanoseconds) do
    sorted = nanoseconds |> Enum.map(&(&1 / 1000)) |> Enum.sort()
    mean = Enum.sum(sorted) / length(sorted)

    %{
      runs: length(sorted),
      mean_us: mean,
      stddev_us: deviation(sorted, mean),
      min_us: hd(sorted),
      p50_us: Report.percentile(sorted, 50),
      p90_us: Report.percentile(sorted, 90),
      p99_us: Report.percentile(sorted, 99),
      max_us: List.last(sorted)
    }
  end

  defp deviation([_], _mean), do: 0.0

  defp deviation(values, mean) do
    squares = values |> Enum.map(&((&1 - mean) * (&1 - mean))) |> Enum.sum()
    :math.sqrt(squares / (length(values) - 1))
  end

  @doc """
  ||ours - theirs|| / ||theirs|| over at most #{@samples} elements, evenly spread over `theirs`; `ours` may be
  longer, and of another type. `:invalid` where one of them is not finite or too short.
  """
  @spec relative_error({atom(), tuple(), binary()}, {atom(), tuple(), binary()}) :: float() | :invalid
  def relative_error({our_type, _, ours}, {their_type, _, theirs}) do
    count = div(byte_size(theirs), size(their_type))
    step = max(div(count, @samples), 1)

    sums =
      Enum.reduce_while(0..(count - 1)//step, {0.0, 0.0}, fn index, {difference, norm} ->
        with {:ok, a} <- element(our_type, ours, index), {:ok, b} <- element(their_type, theirs, index) do
          {:cont, {difference + (a - b) * (a - b), norm + b * b}}
        else
          :error -> {:halt, :invalid}
        end
      end)

    case sums do
      :invalid -> :invalid
      {difference, norm} when norm == 0.0 -> :math.sqrt(difference)
      {difference, norm} -> :math.sqrt(difference / norm)
    end
  end

  defp size(:f32), do: 4
  defp size(_), do: 2

  defp element(type, binary, index) do
    size = size(type)

    if byte_size(binary) >= (index + 1) * size,
      do: type |> decode(binary_part(binary, index * size, size)),
      else: :error
  end

  # A NaN or an infinity matches no float pattern.
  defp decode(:f32, <<value::float-32-little>>), do: {:ok, value}
  defp decode(:f16, <<value::float-16-little>>), do: {:ok, value}
  defp decode(:bf16, <<bits::16-little>>), do: decode(:f32, <<0::16, bits::16-little>>)
  defp decode(_type, _bits), do: :error
end
