# What examples/chaser.exs prints and writes.

defmodule Chaser.Report do
  alias ExPhil.Native.Gnuplot

  # `lines`: {name, [{step, score}]}. Writes score.csv.
  def curves(lines, folder) do
    lines = for {name, scores} <- lines, do: {name, for({step, score} <- scores, do: {step, score.on_target})}
    csv = for {name, points} <- lines, {step, share} <- points, do: "#{name},#{step},#{share}\n"
    File.write!(Path.join(folder, "score.csv"), ["policy,step,on_target\n", csv])
    IO.puts("")
    width = lines |> Enum.map(&String.length(elem(&1, 0))) |> Enum.max()

    for {name, points} <- lines,
        {step, share} <- points,
        do: IO.puts(bar(String.pad_trailing(name, width), step, share))

    lines
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

  # chaser.svg: the curves, and a live game seen from above. Without gnuplot there is none.
  def picture(curves, worlds, folder) do
    path = fn key -> for world <- worlds, do: world[key] end
    game = {[{"target", path.(:target)}, {"chaser", path.(:chaser)}], "8 seconds live, x", "y"}
    panels = if curves == [], do: [game], else: [{curves, "training steps", "% of frames on target"}, game]

    if Gnuplot.available?() do
      {:ok, svg} = Gnuplot.panels(panels)
      File.write!(Path.join(folder, "chaser.svg"), svg)
    end
  end

  def told(%{on_target: share, distance: distance}),
    do: "on target in #{number(share)}% of frames, mean distance #{number(distance)}"

  def number(v), do: :erlang.float_to_binary(v / 1, decimals: 2)
  defp share(v), do: :erlang.float_to_binary(v / 1, decimals: 1)
end
