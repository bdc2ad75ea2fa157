defmodule ExPhil.Native.Tools.Benchmark.Report do
  @moduledoc """
  A report of `ExPhil.Native.Tools.Benchmark.run/1` as text: the tables of `mix exphil.bench`. The page has the same
  text; see `ExPhil.Native.Tools.Benchmark.Page`.
  """

  @columns [
    "mean",
    "std dev",
    "p50",
    "p90",
    "p99",
    "bytes",
    "operations",
    "bytes/s",
    "of ceiling",
    "speed-up"
  ]

  @doc "The machine and every suite's table, as lines of text."
  @spec text(map()) :: String.t()
  def text(report) do
    tables = for suite <- report.suites, do: table(suite, Enum.filter(report.cases, &(&1.suite == suite)))
    Enum.join([machine(report) | tables] ++ [notes(report)], "\n\n")
  end

  @doc "The machine and the settings of the measurement, as pairs of a name and its value."
  @spec facts(map()) :: [{String.t(), String.t()}]
  def facts(report) do
    rates = report.copy_bytes_per_second

    link =
      if report.backend == :host,
        do: [],
        else: [
          {"copies to the device", rate(rates.to_device)},
          {"copies from the device", rate(rates.from_device)}
        ]

    [
      {"backend", "#{report.backend}, #{report.device}"},
      {"type", to_string(report.dtype)}
    ] ++
      if(report.policy, do: [{"policy", report.policy}], else: []) ++
      [
        {"runs", "#{report.runs} of each case, after #{report.warmup} to warm up"},
        {"memory ceiling (copies, read and written)", rate(rates.memory)}
      ] ++
      link ++
      [
        {"date", report.date},
        {"versions", "exphil_native #{report.version}, Elixir #{report.elixir}, Erlang/OTP #{report.otp}"},
        {"system", "#{report.system}, #{report.cores} cores"}
      ]
  end

  @doc "The cells of `columns/0` for one case, as strings."
  @spec cells(map()) :: [String.t()]
  def cells(result) do
    [
      time(result.mean_us),
      time(result.stddev_us),
      time(result.p50_us),
      time(result.p90_us),
      time(result.p99_us),
      amount(result.bytes.in + result.bytes.out + result.bytes.resident, "B"),
      amount(result.operations, ""),
      rate(result.bytes_per_second),
      percent(result.ceiling_share),
      speed_up(result),
      if(result.meets_60_fps, do: "yes", else: "no")
    ]
  end

  @doc "The names of the columns of a suite's table, as strings."
  @spec columns() :: [String.t()]
  def columns, do: @columns ++ ["meets 60 FPS"]

  @doc "One sentence that describes each suite."
  @spec title(String.t()) :: String.t()
  def title(suite)
  def title("scan"), do: "the selective scan over full sequences"
  def title("step"), do: "one step of the selective scan, with its state in the VM"
  def title("discretization"), do: "the selective scan under each discretization rule"

  def title("associative"),
    do: "cumulative sums and linear recurrences, 4 x length x 512 along the middle axis"

  def title("transfer"),
    do: "a tensor from the VM, its first half added to its second, and as many bytes back to the VM"

  def title("policy"), do: "a policy: from an observation to its answer"

  @doc "Remarks on the tables: sentences, of which there may be none."
  @spec remarks(map()) :: [String.t()]
  def remarks(report) do
    [
      "Times are of complete calls, from the VM's memory to the VM's memory. p99 decides about 60 FPS: it must be " <>
        "below 16.67 ms.",
      if(report.runs < 100, do: "With fewer than 100 runs p99 is the slowest run."),
      "The ceiling is the minimum time in which this machine moves the bytes of the call; over 100 % they came from a cache.",
      "The speed-up is over a plain scalar loop on one core of this machine, without the cost of a call.",
      if("policy" in report.suites, do: "For the policy that loop computes in double."),
      if(Enum.any?(report.cases, &(&1.reference_fraction < 1)),
        do: "~: the loop was timed on a part of the work, and its time scaled up."
      )
    ]
    |> Enum.reject(&is_nil/1)
  end

  # ---- text ------------------------------------------------------------------------------------------------

  defp machine(report) do
    facts = facts(report)
    width = facts |> Enum.map(&String.length(elem(&1, 0))) |> Enum.max()
    Enum.map_join(facts, "\n", fn {name, value} -> "#{String.pad_trailing(name, width + 2)}#{value}" end)
  end

  defp notes(report), do: Enum.join(remarks(report), "\n")

  defp table(suite, results) do
    rows = for result <- results, do: [label(result) | cells(result)]
    "#{suite}: #{title(suite)}\n" <> align([["" | columns()] | rows])
  end

  @doc "A case's name with its shape, as a string."
  @spec label(map()) :: String.t()
  def label(%{suite: "policy"} = result), do: result.name
  def label(result), do: "#{result.name} (#{shape(result)})"

  @doc "The shape of a case in short, as a string: 1x256x1024x16."
  @spec shape(map()) :: String.t()
  def shape(result), do: Enum.join(result.shape, "x")

  # The first column is left-aligned, numbers right-aligned.
  defp align(rows) do
    widths =
      rows
      |> Enum.zip_with(& &1)
      |> Enum.map(fn cells -> cells |> Enum.map(&String.length/1) |> Enum.max() end)

    Enum.map_join(rows, "\n", fn [first | cells] ->
      padded =
        cells |> Enum.zip(tl(widths)) |> Enum.map(fn {cell, width} -> String.pad_leading(cell, width) end)

      Enum.join(["  " <> String.pad_trailing(first, hd(widths)) | padded], "  ")
    end)
  end

  # ---- numbers ---------------------------------------------------------------------------------------------

  @doc """
  Microseconds in the most readable unit.

      iex> alias ExPhil.Native.Tools.Benchmark.Report
      iex> {Report.time(3.25), Report.time(954.3), Report.time(16_670.0), Report.time(2.5e6)}
      {"3.25 us", "954 us", "16.7 ms", "2.50 s"}
  """
  @spec time(number()) :: String.t()
  def time(us) when us < 1000, do: digits(us) <> " us"
  def time(us) when us < 1.0e6, do: digits(us / 1000) <> " ms"
  def time(us), do: digits(us / 1.0e6) <> " s"

  @doc "Bytes a second in the most readable unit, as a string."
  @spec rate(number()) :: String.t()
  def rate(value), do: amount(value, "B/s")

  defp amount(value, unit) do
    {value, prefix} =
      cond do
        value >= 1.0e12 -> {value / 1.0e12, "T"}
        value >= 1.0e9 -> {value / 1.0e9, "G"}
        value >= 1.0e6 -> {value / 1.0e6, "M"}
        value >= 1.0e3 -> {value / 1.0e3, "k"}
        true -> {value, ""}
      end

    String.trim_trailing("#{digits(value)} #{prefix}#{unit}")
  end

  defp percent(share), do: digits(100 * share) <> " %"

  @doc "The speed-up, marked where the reference ran on a part of the work."
  @spec speed_up(map()) :: String.t()
  def speed_up(%{reference_fraction: fraction} = result) when fraction < 1, do: "~" <> times(result.speed_up)
  def speed_up(result), do: times(result.speed_up)

  defp times(factor), do: digits(factor) <> "x"

  # Three significant digits.
  defp digits(value) when is_integer(value) and value < 1000, do: Integer.to_string(value)

  defp digits(value) do
    decimals =
      cond do
        value >= 100 -> 0
        value >= 10 -> 1
        true -> 2
      end

    :erlang.float_to_binary(value * 1.0, decimals: decimals)
  end
end
