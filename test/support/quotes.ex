defmodule ExPhil.Native.TestSupport.Quotes do
  @moduledoc """
  Finds the times (us, ms) that a document quotes and that no recorded result has. A paragraph with a time links to a
  file of bench/results; `55 / 80 us` are values of one row of its tables, as they are written there. Code is not read.

  A cell's unit is its own, else that of its column's header, else us. Targets and floors are not measurements.
  """

  @times ~r"(\d[\d,.]*(?:\s*(?:/|,|to|and)\s*\d[\d,.]*)*)\s*(us|µs|ms)\b"u
  @link ~r"\]\((bench/results/\w+\.(?:md|csv))(?:#[\w-]+)?\)"
  @cell ~r"^(\d[\d,]*(?:\.\d+)?)(?:\s*(us|ms))?$"
  @target ~r/must|aim|floor|missed|asked/

  # The period of a frame at 60 FPS is not measured.
  @constants [{["16.67"], "ms"}]

  @doc "The quoted times of `text` that the files to which their paragraphs link do not have. `read` reads such a file."
  def invented(text, read \\ &File.read!/1) do
    for paragraph <- paragraphs(text),
        {values, unit} = time <- times(paragraph),
        time not in @constants,
        rows = @link |> Regex.scan(paragraph) |> Enum.flat_map(fn [_, file] -> rows(file, read.(file)) end),
        not Enum.any?(rows, fn row -> Enum.all?(values, &({&1, unit} in row)) end),
        do: "#{Enum.join(values, " / ")} #{unit}"
  end

  @doc "The times of `text` as {values, unit}, constants included."
  def times(text) do
    for [_, values, unit] <- Regex.scan(@times, text) do
      values = Regex.scan(~r"\d[\d,]*(?:\.\d+)?", values) |> Enum.map(fn [value] -> plain(value) end)
      {values, String.replace(unit, "µs", "us")}
    end
  end

  @doc "The measured values of each row of a file's tables: lists of {value, unit}."
  def rows(file, content) do
    {lines, separator} =
      if Path.extname(file) == ".csv" do
        {String.split(content, "\n", trim: true), ","}
      else
        {Regex.scan(~r/^\|(.*)\|\s*$/m, content, capture: :all_but_first) |> List.flatten(), "|"}
      end

    lines |> Enum.map(&String.split(&1, separator)) |> measured(nil, Path.extname(file) == ".csv")
  end

  # A table of Markdown begins with a header above a line of dashes; the only one of a CSV file is its first line.
  defp measured([header | rows], nil, true), do: Enum.map(rows, &values(header, &1))
  defp measured([header, ["---" | _] | rows], _, false), do: measured(rows, header, false)
  defp measured([row | rows], header, false), do: [values(header, row) | measured(rows, header, false)]
  defp measured([], _, _), do: []

  defp values(header, row) do
    for {title, cell} <- Enum.zip(header, row),
        not (title =~ @target),
        value <- cell_values(title, cell),
        do: value
  end

  defp cell_values(title, cell) do
    for part <- cell |> String.replace("*", "") |> String.split([" / ", ", "]),
        [_, value | unit] <- [Regex.run(@cell, String.trim(part))] do
      {plain(value), List.first(unit) || if(title =~ ~r/\bms\b/, do: "ms", else: "us")}
    end
  end

  # Without the commas between thousands.
  defp plain(value), do: value |> String.trim_trailing(",") |> String.replace(",", "")

  defp paragraphs(text) do
    text |> String.replace(~r/^```.*?^```$/ms, "") |> String.split(~r/\n\s*\n/)
  end
end
