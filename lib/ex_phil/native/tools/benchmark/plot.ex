defmodule ExPhil.Native.Tools.Benchmark.Plot do
  @moduledoc false
  # The page's plots, drawn by gnuplot as SVG. gnuplot is optional: everything but the page works without it.

  alias ExPhil.Native.Gnuplot
  alias ExPhil.Native.Tools.Benchmark.Report

  @blue "#1f6fb2"
  @orange "#d9722b"
  @grey "#7d838c"
  @red "#c0392b"

  # Ticks of a time axis in microseconds.
  @ticks for {text, us} <- [
               {"1 µs", 1},
               {"10 µs", 10},
               {"100 µs", 100},
               {"1 ms", 1000},
               {"10 ms", 10_000},
               {"100 ms", 100_000},
               {"1 s", 1_000_000},
               {"10 s", 10_000_000}
             ],
             do: ~s("#{text}" #{us})

  @doc "Whether gnuplot is available."
  @spec available?() :: boolean()
  defdelegate available?, to: Gnuplot

  @doc "How to get gnuplot."
  @spec advice() :: String.t()
  def advice do
    "the page's plots are drawn by gnuplot, which was not found; #{Gnuplot.remedy()}, or use " <>
      "--json, which needs nothing"
  end

  @doc "Times of a suite's cases: lines where cases form lines over a size, otherwise a row for each case."
  @spec times([map(), ...], float(), String.t()) :: {:ok, String.t()} | {:error, String.t()}
  def times([%{line: %{}} | _] = results, frame_us, id), do: results |> lines(frame_us) |> draw(id)
  def times(results, frame_us, id), do: results |> rows(frame_us) |> draw(id)

  @doc "Speed-ups over the scalar reference as bars."
  @spec speed_ups([map(), ...], String.t()) :: {:ok, String.t()} | {:error, String.t()}
  def speed_ups(results, id), do: results |> bars() |> draw(id)

  @doc """
  The README's picture: medians and 99th percentiles of several programs against the time of a frame, as a separate
  file. Each row is `%{name: text, ours: boolean, p50_us: number, p99_us: number | nil}`.
  """
  @spec latencies([map(), ...], float()) :: {:ok, String.t()} | {:error, String.t()}
  def latencies(rows, frame_us), do: rows |> comparison(frame_us) |> Gnuplot.svg()

  # ---- scripts ---------------------------------------------------------------------------------------------

  # Times differ by orders of magnitude, so the axis is logarithmic and points mark the medians: the length of
  # a bar is meaningless on it.
  defp rows(results, frame_us) do
    [
      terminal(length(results)),
      data(results, &[&1.p50_us, &1.p99_us, &1.reference_us, &1.ceiling_us]),
      category_axis(results),
      time_axis("x", times(results), frame_us),
      frame_line(:vertical, frame_us),
      "plot $data using 2:1:($3-$2):(0) with vectors nohead lw 4 lc rgb '#a9cbe8' title 'to p99', ",
      "  '' using 2:1 with points pt 7 ps 0.9 lc rgb '#{@blue}' title 'p50', ",
      "  '' using 4:1 with points pt 6 ps 0.9 lw 1.5 lc rgb '#{@orange}' title 'scalar reference', ",
      "  '' using 5:1 with points pt 2 ps 0.8 lw 1.5 lc rgb '#{@grey}' title 'ceiling'\n"
    ]
  end

  defp lines(results, frame_us) do
    names = results |> Enum.map(& &1.line.name) |> Enum.uniq()
    sizes = results |> Enum.map(& &1.line.size) |> Enum.uniq()
    ticks = Enum.map_join(sizes, ", ", &~s("#{size_label(hd(results).suite, &1)}" #{&1}))

    blocks =
      for {name, index} <- Enum.with_index(names) do
        points =
          for %{line: %{name: ^name}} = r <- results,
              do: "#{r.line.size} #{r.p50_us} #{r.p99_us} #{r.reference_us} #{r.ceiling_us}\n"

        ["$line#{index} << END\n", points, "END\n"]
      end

    [
      terminal(9),
      blocks,
      time_axis("y", times(results), frame_us),
      "set logscale x 2\nset xtics (#{ticks})\nset xrange [#{hd(sizes) / 1.25}:#{List.last(sizes) * 1.25}]\n",
      "set xlabel '#{size_name(hd(results).suite)}'\nset rmargin 3\n",
      "set key outside top center horizontal Left reverse maxrows #{length(names)}\n",
      frame_line(:horizontal, frame_us),
      "plot ",
      names |> Enum.with_index() |> Enum.map(&line/1) |> Enum.intersperse(", "),
      "\n"
    ]
  end

  defp line({name, index}) do
    color = Enum.at([@blue, @orange], rem(index, 2))

    [
      "$line#{index} using 1:2:2:3 with yerrorbars pt 7 ps 0.7 lw 1.2 lc rgb '#{color}' notitle, ",
      "$line#{index} using 1:2 with lines lw 2 lc rgb '#{color}' title '#{name}, p50 to p99', ",
      "$line#{index} using 1:4 with linespoints pt 6 ps 0.6 lw 1 dt 2 lc rgb '#{color}' title 'scalar reference', ",
      "$line#{index} using 1:5 with lines lw 1.2 dt 3 lc rgb '#{color}' title 'ceiling'"
    ]
  end

  defp bars(results) do
    widest = results |> Enum.map(& &1.speed_up) |> Enum.max()

    [
      terminal(length(results)),
      data(results, &[&1.speed_up, ~s("#{Report.speed_up(&1)}")]),
      category_axis(results),
      # Room for the number behind the longest bar.
      "set xrange [0:#{max(widest, 1.0) * 1.2}]\nset xlabel 'times as fast as the scalar reference'\nunset key\n",
      "set arrow from 1, graph 0 to 1, graph 1 nohead lw 1 dt 2 lc rgb '#{@grey}'\n",
      "plot $data using 2:1:(0):2:($1-0.32):($1+0.32) with boxxyerror fs solid noborder lc rgb '#{@blue}', ",
      "  '' using 2:1:3 with labels left offset char 0.6,0 tc rgb '#333333'\n"
    ]
  end

  # Two colours for this library and others; the median as text next to each point, because a logarithmic axis
  # hides ratios.
  defp comparison(rows, frame_us) do
    p99 = &(&1.p99_us || &1.p50_us)

    [
      terminal(length(rows)),
      data(rows, &[&1.p50_us, p99.(&1), if(&1.ours, do: 1, else: 0), ~s("#{microseconds(&1.p50_us)}")]),
      category_axis(rows),
      "set key at screen 0.05, screen 0.06 left center horizontal Left reverse maxrows 1\nset bmargin 4.5\n",
      time_axis("x", Enum.flat_map(rows, &[&1.p50_us, p99.(&1)]), frame_us),
      frame_line(:vertical, frame_us),
      "plot $data using 2:1:($3-$2):(0) with vectors nohead lw 4 lc rgb '#a9cbe8' title 'to p99', ",
      "  '' using ($4==1?$2:NaN):1 with points pt 7 ps 1 lc rgb '#{@blue}' title 'this library, p50', ",
      "  '' using ($4==0?$2:NaN):1 with points pt 7 ps 1 lc rgb '#{@grey}' title 'others, p50', ",
      "  '' using 3:1:5 with labels left offset char 1,0 tc rgb '#333333' notitle\n"
    ]
  end

  @doc "A time in the unit that suits it: \"24.6 µs\", \"4.8 ms\"."
  @spec microseconds(number()) :: String.t()
  def microseconds(us) when us < 1000, do: "#{short(us)} µs"
  def microseconds(us), do: "#{short(us / 1000)} ms"

  defp short(value) when value >= 100, do: "#{round(value)}"
  defp short(value), do: "#{Float.round(value / 1, 1)}"

  defp terminal(rows), do: Gnuplot.terminal(130 + 30 * rows)

  # Row 0 is at the top.
  defp data(results, numbers) do
    rows = for {result, y} <- Enum.with_index(results), do: [Enum.join([-y | numbers.(result)], " "), "\n"]
    ["$data << END\n", rows, "END\n"]
  end

  defp category_axis(results) do
    ticks = for {result, y} <- Enum.with_index(results), do: ~s("#{result.name}" #{-y})
    "set ytics (#{Enum.join(ticks, ", ")})\nset yrange [#{0.4 - length(results)}:0.6]\n"
  end

  # The budget of a frame is always on the axis.
  defp times(results), do: Enum.flat_map(results, &[&1.p50_us, &1.p99_us, &1.reference_us, &1.ceiling_us])

  defp time_axis(axis, times, frame_us) do
    least = times |> Enum.filter(&(&1 > 0)) |> Enum.min(fn -> 1.0 end)
    most = Enum.max([2 * frame_us | times])

    """
    set logscale #{axis}
    set #{axis}tics (#{Enum.join(@ticks, ", ")})
    set #{axis}range [#{max(least, 0.05) / 1.6}:#{most * 1.6}]
    """
  end

  defp frame_line(:vertical, us) do
    "set arrow from #{us}, graph 0 to #{us}, graph 1 nohead lw 1.3 dt 4 lc rgb '#{@red}'\n" <>
      "set label '60 FPS ' at #{us}, graph 1.04 center tc rgb '#{@red}'\n"
  end

  defp frame_line(:horizontal, us) do
    "set arrow from graph 0, first #{us} to graph 1, first #{us} nohead lw 1.3 dt 4 lc rgb '#{@red}'\n" <>
      "set label ' 60 FPS' at graph 0, first #{us * 1.35} left tc rgb '#{@red}'\n"
  end

  defp size_name("transfer"), do: "bytes of the tensor"
  defp size_name(_suite), do: "length"

  defp size_label("transfer", kib) when kib >= 1024, do: "#{div(kib, 1024)} MiB"
  defp size_label("transfer", kib), do: "#{kib} KiB"
  defp size_label(_suite, size), do: "#{size}"

  # ---- drawing ---------------------------------------------------------------------------------------------

  defp draw(script, id) do
    with {:ok, svg} <- Gnuplot.svg(script), do: {:ok, embeddable(svg, id)}
  end

  # One page holds many of these: without the XML prologue, with unique identifiers, at full width, and
  # without gnuplot's titles, which a browser would show as tooltips.
  defp embeddable(svg, id) do
    svg
    |> String.replace(~r/\A.*?(?=<svg)/s, "")
    |> String.replace(~r/<(title|desc)>.*?<\/\1>/s, "")
    |> String.replace(~r/\bid=(['"])/, "id=\\1#{id}_")
    |> String.replace(~r/href=(['"])#/, "href=\\1##{id}_")
    |> String.replace(~r/url\(#/, "url(##{id}_")
    |> String.replace(~r/\A<svg\s+width="\d+" height="\d+"/, "<svg role=\"img\"")
  end
end
