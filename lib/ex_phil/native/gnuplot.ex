defmodule ExPhil.Native.Gnuplot do
  @moduledoc false
  # Draws SVG with gnuplot, which is optional. Used by ExPhil.Native.Trainer and by the plots of the
  # benchmarks.

  @colors ["#1f6fb2", "#d9722b", "#7d838c", "#c0392b", "#2e8b57", "#8e5ea2"]

  @doc "Whether gnuplot is there."
  @spec available?() :: boolean()
  def available?, do: System.find_executable("gnuplot") != nil

  @doc "How to get it."
  @spec remedy() :: String.t()
  def remedy, do: "install it (Debian: apt-get install gnuplot-nox)"

  @doc "The start of a script: an SVG of this height in the library's style."
  @spec terminal(pos_integer()) :: String.t()
  def terminal(height) do
    """
    set encoding utf8
    set terminal svg size 720,#{height} font "sans-serif,13" background "#ffffff" noenhanced
    set border 3 lc rgb '#999999'
    set tics nomirror tc rgb '#333333'
    set grid lc rgb '#dddddd' lt 1 lw 0.7
    set key outside bottom center horizontal Left reverse maxrows 2 samplen 2 spacing 1.1 tc rgb '#333333'
    """
  end

  @typedoc "A line for each `{title, [{x, y}]}`, with a point at each place where there are few, and the names of the axes."
  @type panel ::
          {[{String.t(), [{number(), number()}]}], x_label :: String.t(), y_label :: String.t()}

  @doc "One panel."
  @spec lines([{String.t(), [{number(), number()}]}], String.t(), String.t()) ::
          {:ok, String.t()} | {:error, String.t()}
  def lines(lines, x_label, y_label), do: panels([{lines, x_label, y_label}])

  @doc "Panels side by side."
  @spec panels([panel()]) :: {:ok, String.t()} | {:error, String.t()}
  def panels(panels) do
    plots = for {panel, index} <- Enum.with_index(panels), do: panel(panel, "$panel#{index}_")

    case panels do
      [_one] ->
        svg([terminal(400), plots])

      _ ->
        svg([
          terminal(400),
          "set bmargin 6\nset multiplot layout 1,#{length(panels)}\n",
          plots,
          "unset multiplot\n"
        ])
    end
  end

  defp panel({lines, x_label, y_label}, prefix) do
    blocks =
      for {{_title, points}, index} <- Enum.with_index(lines),
          do: ["#{prefix}#{index} << END\n", for({x, y} <- points, do: "#{x} #{y}\n"), "END\n"]

    plots =
      for {{title, points}, index} <- Enum.with_index(lines) do
        style = if length(points) <= 40, do: "linespoints pt 7 ps 0.6", else: "lines"
        color = Enum.at(@colors, rem(index, length(@colors)))
        "#{prefix}#{index} using 1:2 with #{style} lw 1.5 lc rgb '#{color}' title \"#{title}\""
      end

    [
      blocks,
      "set xlabel \"#{x_label}\"\nset ylabel \"#{y_label}\"\nplot ",
      Enum.intersperse(plots, ", "),
      "\n"
    ]
  end

  @doc "Runs the script."
  @spec svg(iodata()) :: {:ok, String.t()} | {:error, String.t()}
  def svg(script) do
    file =
      Path.join(System.tmp_dir!(), "exphil_plot.#{System.pid()}.#{System.unique_integer([:positive])}.gp")

    try do
      File.write!(file, script)

      case System.cmd("gnuplot", [file], stderr_to_stdout: true) do
        {svg, 0} -> {:ok, svg}
        {output, status} -> {:error, "gnuplot failed (status #{status}): #{String.trim(output)}"}
      end
    after
      File.rm(file)
    end
  end
end
