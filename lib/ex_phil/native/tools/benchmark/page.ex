defmodule ExPhil.Native.Tools.Benchmark.Page do
  @moduledoc """
  A report of `ExPhil.Native.Tools.Benchmark.run/1` as one HTML file with plots. It needs no network and no script.
  """

  alias ExPhil.Native.Tools.Benchmark.{Plot, Report}

  @style """
  :root { color-scheme: light; }
  body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1500px; margin: 0 auto;
         padding: 1.5rem; }
  h1 { font-size: 1.5rem; margin: 0 0 .5rem; }
  h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; border-bottom: 1px solid #ddd; padding-bottom: .25rem; }
  p { margin: .25rem 0; max-width: 60rem; }
  dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.25rem; margin: .75rem 0; }
  dt { color: #666; } dd { margin: 0; overflow-wrap: anywhere; }
  .plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); gap: 1rem; }
  figure { margin: .75rem 0; } figcaption { color: #555; font-size: .9rem; }
  svg { width: 100%; height: auto; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; width: 100%; }
  th, td { padding: .25rem .45rem; text-align: right; border-bottom: 1px solid #eee; }
  td { white-space: nowrap; }
  thead th { vertical-align: bottom; color: #555; font-weight: 600; border-bottom: 1px solid #bbb; }
  tbody th { text-align: left; font-weight: 500; }
  thead th:first-child { text-align: left; }
  .yes { color: #1c7c3c; } .no { color: #b3261e; font-weight: 600; }
  @media print { body { max-width: none; padding: 0; } section { break-inside: avoid; } }
  """

  @doc "Whether gnuplot is available to draw the plots: `:ok`, else `{:error, text}`, which says how to get it."
  @spec ready() :: :ok | {:error, String.t()}
  def ready, do: if(Plot.available?(), do: :ok, else: {:error, Plot.advice()})

  @doc "The page of a report: `{:ok, html}`, one file with its plots inside, or `{:error, text}` where gnuplot cannot draw them."
  @spec html(map()) :: {:ok, iodata()} | {:error, String.t()}
  def html(report) do
    with :ok <- ready(), {:ok, sections} <- sections(report) do
      {:ok,
       [
         "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
         "<title>exphil_native benchmarks, #{escape(report.date)}</title>\n<style>\n#{@style}</style>\n</head>\n<body>\n",
         header(report),
         sections,
         "</body>\n</html>\n"
       ]}
    end
  end

  defp header(report) do
    facts =
      for {name, value} <- Report.facts(report), do: "<dt>#{escape(name)}</dt><dd>#{escape(value)}</dd>\n"

    remarks = for remark <- Report.remarks(report), do: "<p>#{escape(remark)}</p>\n"
    ["<h1>exphil_native benchmarks</h1>\n<dl>\n", facts, "</dl>\n", remarks]
  end

  defp sections(report) do
    Enum.reduce_while(report.suites, {:ok, []}, fn suite, {:ok, before} ->
      case section(suite, report) do
        {:ok, html} -> {:cont, {:ok, [before, html]}}
        {:error, reason} -> {:halt, {:error, reason}}
      end
    end)
  end

  defp section(suite, report) do
    results = Enum.filter(report.cases, &(&1.suite == suite))

    with {:ok, times} <- Plot.times(results, report.frame_us, "#{suite}_time"),
         {:ok, speed_ups} <- Plot.speed_ups(results, "#{suite}_speed") do
      {:ok,
       [
         "<section>\n<h2>#{escape(suite)}</h2>\n<p>#{escape(upper(Report.title(suite)))}.</p>\n<div class=\"plots\">\n",
         figure(times, "Time of a call"),
         figure(speed_ups, "Speed-up over the scalar reference"),
         "</div>\n",
         table(results),
         "</section>\n"
       ]}
    end
  end

  defp figure(svg, caption), do: ["<figure><figcaption>", caption, "</figcaption>\n", svg, "</figure>\n"]

  defp table(results) do
    titles =
      for column <- ["case", hd(results).axes |> Enum.join(" x ") | Report.columns()],
          do: "<th>#{column}</th>"

    rows =
      for result <- results do
        cells = for cell <- [Report.shape(result) | Report.cells(result)], do: cell(cell)
        ["<tr><th>#{escape(result.name)}</th>", cells, "</tr>\n"]
      end

    [
      "<div class=\"wide\"><table>\n<thead><tr>",
      titles,
      "</tr></thead>\n<tbody>\n",
      rows,
      "</tbody></table></div>\n"
    ]
  end

  defp cell(word) when word in ["yes", "no"], do: "<td class=\"#{word}\">#{word}</td>"
  defp cell(text), do: "<td>#{escape(text)}</td>"

  defp upper(<<first::utf8, rest::binary>>), do: String.upcase(<<first::utf8>>) <> rest

  defp escape(text) do
    text
    |> to_string()
    |> String.replace("&", "&amp;")
    |> String.replace("<", "&lt;")
    |> String.replace(">", "&gt;")
    |> String.replace("\"", "&quot;")
  end
end
