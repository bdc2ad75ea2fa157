# Draws the README's picture, docs/latency.svg, from the recorded results in bench/results/latency.csv:
#
#   mix run bench/latency_picture.exs
#
# Needs gnuplot. Each row of the file names the source of its numbers; an empty p99 was not measured.
alias ExPhil.Native.Tools.Benchmark.Plot

[_header | lines] = "bench/results/latency.csv" |> File.read!() |> String.split("\n", trim: true)

rows =
  for line <- lines do
    [what, where, program, p50, p99 | _source] = String.split(line, ",")
    number = fn text -> text |> Float.parse() |> elem(0) end

    %{
      name: "#{what}, #{where}: #{program}",
      ours: program == "exphil_native",
      p50_us: number.(p50),
      p99_us: if(p99 != "", do: number.(p99))
    }
  end

{:ok, svg} = Plot.latencies(rows, 16_666.7)
File.write!("docs/latency.svg", svg)
IO.puts("docs/latency.svg: #{length(rows)} rows")
