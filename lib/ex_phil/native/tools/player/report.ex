defmodule ExPhil.Native.Tools.Player.Report do
  @moduledoc """
  The report of `mix exphil.play`: a table, and the same numbers for a program.
  """

  alias ExPhil.Native.Tools.Player
  alias ExPhil.Native.Tools.Player.{Rounding, Verify}

  @typedoc "Latencies of the step in microseconds, and their share of a frame."
  @type summary :: %{
          frames: non_neg_integer(),
          missed: non_neg_integer(),
          rollbacks: non_neg_integer(),
          sessions: pos_integer(),
          fps: number(),
          budget_ms: float(),
          p50_us: float(),
          p90_us: float(),
          p99_us: float(),
          max_us: float(),
          mean_us: float(),
          budget_share: float()
        }

  @doc "The numbers of a play, as a map (`t:summary/0`). `budget_share` is the 99th percentile of the step as a share of the time of a frame."
  @spec summarise(Player.result()) :: summary()
  def summarise(result) do
    sorted = Enum.sort(result.latencies)
    budget_us = 1.0e6 / result.fps
    p99 = percentile(sorted, 99)

    %{
      frames: result.frames,
      missed: result.missed,
      rollbacks: result.rollbacks,
      sessions: result.sessions,
      fps: result.fps,
      budget_ms: budget_us / 1000,
      p50_us: percentile(sorted, 50),
      p90_us: percentile(sorted, 90),
      p99_us: p99,
      max_us: List.last(sorted),
      mean_us: Enum.sum(sorted) / length(sorted),
      budget_share: p99 / budget_us
    }
  end

  @doc """
  The smallest value that at least `percent` per cent of the sorted values do not exceed.

      iex> ExPhil.Native.Tools.Player.Report.percentile([1.0, 2.0, 3.0, 4.0], 50)
      2.0
      iex> ExPhil.Native.Tools.Player.Report.percentile([1.0, 2.0, 3.0, 4.0], 99)
      4.0
  """
  @spec percentile([number(), ...], number()) :: number()
  def percentile(sorted, percent) do
    rank = ceil(percent / 100 * length(sorted))
    Enum.at(sorted, max(rank - 1, 0))
  end

  @doc "The table, as lines of text; with what rounded weights changed, where that was measured."
  @spec table(summary(), Verify.t(), nil | Rounding.t()) :: String.t()
  def table(summary, verify, rounding \\ nil) do
    [
      {"frames", Integer.to_string(summary.frames)},
      {"missed deadlines", Integer.to_string(summary.missed)},
      if(summary.rollbacks > 0, do: {"rollbacks", Integer.to_string(summary.rollbacks)}),
      {timed(summary) <> " p50", us(summary.p50_us)},
      {"p90", us(summary.p90_us)},
      {"p99", us(summary.p99_us)},
      {"max", us(summary.max_us)},
      {"p99 of the #{decimal(summary.budget_ms, 2)} ms budget",
       decimal(100 * summary.budget_share, 2) <> " %"},
      {"checked", checked(verify)},
      if(rounding, do: {"error of rounded weights", error(rounding)}),
      if(rounding, do: {"frames answered as in f32", same(rounding)})
    ]
    |> Enum.reject(&is_nil/1)
    |> Enum.map_join("\n", fn {name, value} -> "  #{String.pad_trailing(name, 30)}#{value}" end)
  end

  defp error(%{error: error, worst: worst, worst_frame: frame}),
    do: "#{scientific(error)} of the outputs, #{scientific(worst)} in the worst frame (#{frame})"

  defp same(%{same: same, frames: frames, groups: groups}) do
    "#{decimal(100 * same / frames, 2)} % (#{same} of #{frames}), the largest entry of " <>
      if(groups == 1, do: "the outputs", else: "each of #{groups} groups")
  end

  defp timed(%{rollbacks: 0}), do: "step"
  defp timed(_), do: "snapshot or restore, step"

  @doc "One line of progress: what has been played so far."
  @spec progress({frames :: integer(), missed :: integer(), latency :: float()}, total :: integer()) ::
          String.t()
  def progress(played, total)

  def progress({frames, missed, latency}, total) do
    "frame #{frames} of #{total}, missed #{missed}, last step #{us(latency)}"
  end

  @doc "The numbers for a program, as maps, lists, strings, atoms and numbers, which a writer of JSON takes as they are."
  @spec document(summary(), Verify.t(), map(), nil | Rounding.t()) :: map()
  def document(summary, verify, context, rounding \\ nil) do
    checked = %{
      against: verify.against,
      frames: verify.frames,
      failed: verify.failed,
      worst_relative_error: verify.worst,
      tolerance: Verify.tolerance()
    }

    all = summary |> Map.merge(context) |> Map.put(:checked, checked)
    if rounding, do: Map.put(all, :rounding, Map.from_struct(rounding)), else: all
  end

  defp checked(%{against: :nothing}),
    do: "nothing to compare with (rollbacks, and no logits of this precision)"

  defp checked(%{against: :logits} = verify), do: "#{against(verify)} the recorded logits#{worst(verify)}"

  defp checked(%{against: :prefill} = verify),
    do: "#{against(verify)} one prefill of the same frames#{worst(verify)}"

  defp against(%{failed: 0, frames: frames}), do: "all #{frames} answers match"
  defp against(%{failed: failed, frames: frames}), do: "#{failed} of #{frames} answers do NOT match"

  defp worst(%{worst: :invalid, worst_frame: index}), do: ", frame #{index} is not finite or of another size"
  defp worst(%{worst: worst}), do: ", worst relative error #{scientific(worst)}"

  defp scientific(number), do: to_string(:io_lib.format("~.2e", [number * 1.0]))
  defp us(number), do: decimal(number, 1) <> " us"
  defp decimal(number, digits), do: :erlang.float_to_binary(number * 1.0, decimals: digits)
end
