defmodule ExPhil.Native.Tools.Chart do
  @moduledoc """
  A chart of lines as SVG, drawn by nothing but Elixir, for notebooks and for pages. `show/2` gives it to Livebook where Kino is
  there.

      alias ExPhil.Native.Tools.Chart
      [{"loss", [{0, 1.1}, {50, 0.4}, {100, 0.2}]}] |> Chart.lines("steps", "loss") |> Chart.show("loss.svg")
  """

  @width 640
  @height 320
  @left 64
  @right 16
  @top 16
  @bottom 64
  @colors ["#1f6fb2", "#d9722b", "#7d838c", "#c0392b", "#2e8b57", "#8e5ea2"]

  @typedoc "A line by its title, as points from left to right."
  @type line :: {title :: String.t(), [{x :: number(), y :: number()}]}

  @doc """
  The chart of `lines`, with the names of its axes: a string of SVG. The y axis begins at 0 unless a point is below it.

      iex> svg = ExPhil.Native.Tools.Chart.lines([{"score", [{0, 50}, {10, 100}]}], "steps", "% right")
      iex> svg =~ "<svg" and svg =~ ">score<" and svg =~ ">% right<"
      true
  """
  @spec lines(lines :: [line()], x_label :: String.t(), y_label :: String.t()) :: String.t()
  def lines(lines, x_label, y_label) do
    points = Enum.flat_map(lines, &elem(&1, 1))
    if points == [], do: raise(ArgumentError, "lines must have a point")
    {xs, ys} = Enum.unzip(points)
    x = scale(Enum.min(xs), Enum.max(xs), @left, @width - @right)
    y = scale(min(0, Enum.min(ys)), Enum.max(ys), @height - @bottom, @top)

    IO.iodata_to_binary([
      ~s(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 #{@width} #{@height}" width="#{@width}" height="#{@height}" ),
      ~s(font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>),
      for(tick <- ticks(y), do: tick_y(tick, y)),
      for(tick <- ticks(x), do: tick_x(tick, x)),
      text((@left + @width - @right) / 2, @height - 28, x_label, "middle"),
      ~s(<g transform="translate(14 #{(@top + @height - @bottom) / 2}\) rotate(-90\)">#{text(0, 0, y_label, "middle")}</g>),
      for(
        {{title, points}, index} <- Enum.with_index(lines),
        do: drawn(title, points, index, length(lines), x, y)
      ),
      "</svg>\n"
    ])
  end

  @doc """
  Shows an SVG: a picture for Livebook where Kino is there, and else the path of the file that it writes.
  """
  @spec show(svg :: String.t(), path :: Path.t()) :: term()
  def show(svg, path) do
    if Code.ensure_loaded?(Kino.Image) do
      apply(Kino.Image, :new, [svg, "image/svg+xml"])
    else
      File.write!(path, svg)
      path
    end
  end

  # ---- drawing -------------------------------------------------------------------------------------------------

  # Values from `least` to `most` on places from `from` to `to`.
  defp scale(least, most, from, to) do
    most = if most == least, do: least + 1, else: most
    %{least: least, most: most, at: &(from + (&1 - least) / (most - least) * (to - from))}
  end

  # About five round numbers.
  defp ticks(%{least: least, most: most}) do
    rough = (most - least) / 5
    power = :math.pow(10, Float.floor(:math.log10(rough)))
    step = Enum.find([1, 2, 5, 10], &(&1 * power >= rough)) * power
    for k <- ceil(least / step)..floor(most / step)//1, do: k * step
  end

  defp tick_y(value, y) do
    at = y.at.(value)

    ~s(<path d="M#{@left} #{place(at)}H#{@width - @right}" stroke="#ddd"/>) <>
      text(@left - 6, at + 4, number(value), "end")
  end

  defp tick_x(value, x), do: text(x.at.(value), @height - @bottom + 18, number(value), "middle")

  defp drawn(title, points, index, count, x, y) do
    color = Enum.at(@colors, rem(index, length(@colors)))
    path = for {px, py} <- points, do: "#{place(x.at.(px))},#{place(y.at.(py))} "
    at = @left + (index + 0.5) * (@width - @left - @right) / count

    [
      ~s(<polyline fill="none" stroke="#{color}" stroke-width="1.6" points="#{path}"/>),
      ~s(<rect x="#{place(at - 40)}" y="#{@height - 17}" width="12" height="4" fill="#{color}"/>),
      text(at - 24, @height - 10, title, "start")
    ]
  end

  defp text(x, y, text, anchor) do
    escaped = text |> String.replace("&", "&amp;") |> String.replace("<", "&lt;")
    ~s(<text x="#{place(x)}" y="#{place(y)}" fill="#333" text-anchor="#{anchor}">#{escaped}</text>)
  end

  defp place(v), do: :erlang.float_to_binary(v / 1, decimals: 1)

  defp number(v) do
    rounded = round(v)

    if abs(v - rounded) < 1.0e-9 * max(1, abs(v)),
      do: "#{rounded}",
      else: :erlang.float_to_binary(v / 1, [:short])
  end
end
