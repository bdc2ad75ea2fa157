defmodule ExPhil.Native.Tools.FleetTable do
  @moduledoc false
  # A fleet as a table in text, for mix exphil.fleet.

  @columns [
    "node",
    "devices (agents)",
    "agents",
    "copies",
    "frames/s",
    "late",
    "taken over",
    "moved",
    "weights",
    ""
  ]

  @doc "The lines for what `Fleet.info/1` returned."
  @spec lines(String.t(), ExPhil.Native.Fleet.info()) :: [String.t()]
  def lines(name, info) do
    rows = [@columns | Enum.map(info.nodes, &row/1)] ++ Enum.map(info.missing, &missing/1)
    widths = rows |> Enum.zip_with(fn column -> column |> Enum.map(&String.length/1) |> Enum.max() end)
    [head(name, info), "" | Enum.map(rows, &padded(&1, widths))]
  end

  defp head(name, info) do
    state = if info.answers, do: "", else: "; no majority: no answers on this side"

    "#{name}: #{count(length(info.nodes), "node")}, #{count(info.agents, "agent")}, #{info.copies} copies, " <>
      "#{round(info.frames_per_second)} frames/s, #{info.late} of #{info.frames} late; view #{info.view}#{state}"
  end

  defp count(1, what), do: "1 #{what}"
  defp count(count, what), do: "#{count} #{what}s"

  defp row(node) do
    numbers =
      for value <- [
            node.agents,
            node.copies,
            round(node.frames_per_second),
            node.late,
            node.taken_over,
            node.moved
          ],
          do: "#{value}"

    [Atom.to_string(node.node), devices(node.devices)] ++
      numbers ++ ["#{node.generation}", if(node.draining, do: "drained", else: "")]
  end

  defp devices([]), do: "none"
  defp devices(devices), do: Enum.map_join(devices, " ", &"#{&1.backend}:#{&1.index} (#{&1.agents})")

  defp missing(node), do: [Atom.to_string(node)] ++ List.duplicate("", 8) ++ ["out of reach"]

  # Text to the left, numbers to the right.
  defp padded(row, widths) do
    row
    |> Enum.zip(widths)
    |> Enum.with_index(fn
      {cell, width}, index when index in 2..8 -> String.pad_leading(cell, width)
      {cell, width}, _ -> String.pad_trailing(cell, width)
    end)
    |> Enum.join("  ")
    |> String.trim_trailing()
  end
end
