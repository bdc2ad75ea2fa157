defmodule ExPhil.Native.Tools.ChartTest do
  use ExUnit.Case, async: true
  doctest ExPhil.Native.Tools.Chart

  alias ExPhil.Native.Tools.Chart

  defp points(svg) do
    for [_, points] <- Regex.scan(~r/points="([^"]+) "/, svg) do
      for point <- String.split(points), do: point |> String.split(",") |> Enum.map(&String.to_float/1)
    end
  end

  test "points are where the axes say" do
    svg = Chart.lines([{"a", [{0, 0}, {5, 10}, {10, 20}]}, {"b", [{0, 20}, {10, 20}]}], "x & <y>", "y")
    assert [[[x0, y0], [x1, y1], [x2, y2]], [[x0, y2], [x2, y2]]] = points(svg)
    assert x0 < x1 and x1 < x2 and y0 > y1 and y1 > y2
    assert_in_delta x1, (x0 + x2) / 2, 0.1
    # The tick of 20 is at the height of the points of 20.
    assert [_, at] = Regex.run(~r/<path d="M64 ([\d.]+)H\d+" stroke="#ddd"\/><text[^>]*>20</, svg)
    assert String.to_float(at) == y2
    assert svg =~ ">x &amp; &lt;y><"
    for word <- ~w(a b y 0 5 10 15 20), do: assert(svg =~ ">#{word}<")
  end

  test "small, equal, negative and single values have axes" do
    assert Chart.lines([{"a", [{1, 0.001}, {2, 0.003}]}], "x", "y") =~ ">0.001<"
    assert [[_, [_, high], [_, low]]] = points(Chart.lines([{"a", [{0, 0}, {1, 1}, {2, -1}]}], "x", "y"))
    assert high < low
    assert [[_]] = points(Chart.lines([{"a", [{3, 3}]}], "x", "y"))
    assert [[_, _]] = points(Chart.lines([{"a", [{0, 0}, {1, 0}]}], "x", "y"))
    assert_raise ArgumentError, ~r/lines must have a point/, fn -> Chart.lines([{"a", []}], "x", "y") end
  end

  @tag :tmp_dir
  test "without Kino the picture is a file", %{tmp_dir: folder} do
    path = Path.join(folder, "chart.svg")
    unless Code.ensure_loaded?(Kino.Image), do: assert(Chart.show("<svg></svg>", path) == path)
    unless Code.ensure_loaded?(Kino.Image), do: assert(File.read!(path) == "<svg></svg>")
  end
end
