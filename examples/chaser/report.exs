# What examples/chaser.exs prints and writes.

defmodule Chaser.Report do
  alias ExPhil.Native.Gnuplot

  # `lines`: {name, [{step, score}]}. Writes score.csv and, where gnuplot is installed, score.svg.
  def curves(lines, folder) do
    lines = for {name, scores} <- lines, do: {name, for({step, score} <- scores, do: {step, score.on_target})}
    csv = for {name, points} <- lines, {step, share} <- points, do: "#{name},#{step},#{share}\n"
    File.write!(Path.join(folder, "score.csv"), ["policy,step,on_target\n", csv])
    IO.puts("")
    width = lines |> Enum.map(&String.length(elem(&1, 0))) |> Enum.max()

    for {name, points} <- lines,
        {step, share} <- points,
        do: IO.puts(bar(String.pad_trailing(name, width), step, share))

    draw(Path.join(folder, "score.svg"), lines, "training steps", "% of frames on target")
  end

  defp bar(name, step, share) do
    "#{name} #{String.pad_leading("#{step}", 6)}#{String.pad_leading(number(share), 7)}% #{String.duplicate("#", round(share / 2))}"
  end

  # `rows`: {trunk, trained for, %{windowed: score, carried: score}}. Writes trunks.csv.
  def table(rows, folder) do
    IO.puts(
      "\n% of frames on target\n\n| trunk | trained on | played windowed | played carried |\n|---|---|---|---|"
    )

    for {trunk, trained, played} <- rows do
      [windowed, carried] = for way <- [:windowed, :carried], do: cell(played[way].on_target, way == trained)
      IO.puts("| `#{trunk}` | #{trained_on(trained)} | #{windowed} | #{carried} |")
    end

    csv =
      for {trunk, trained, played} <- rows,
          {way, score} <- played,
          do: "#{trunk},#{trained},#{way},#{score.on_target}\n"

    File.write!(Path.join(folder, "trunks.csv"), ["trunk,trained,played,on_target\n", csv])
  end

  defp trained_on(:windowed), do: "windows"
  defp trained_on(:carried), do: "carried states"
  defp cell(share, own?), do: if(own?, do: "**#{share(share)}**", else: share(share))

  # The paths of a live game as live.svg.
  def paths(worlds, folder) do
    path = fn key -> for world <- worlds, do: world[key] end
    draw(Path.join(folder, "live.svg"), [{"target", path.(:target)}, {"chaser", path.(:chaser)}], "x", "y")
  end

  defp draw(path, lines, x_label, y_label) do
    if Gnuplot.available?() do
      {:ok, svg} = Gnuplot.lines(lines, x_label, y_label)
      File.write!(path, svg)
    end
  end

  def told(%{on_target: share, distance: distance}),
    do: "on target in #{number(share)}% of frames, mean distance #{number(distance)}"

  def number(v), do: :erlang.float_to_binary(v / 1, decimals: 2)
  defp share(v), do: :erlang.float_to_binary(v / 1, decimals: 1)
end
