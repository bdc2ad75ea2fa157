# What a game sees: one step once every 16.67 ms, with and without a pace, in turns in one run.
#
#   mix run bench/paced.exs [cuda|host] [SECONDS] [POLICY]
#
# SECONDS (60) is the time of each of the two; they alternate every two seconds, so that both see the same
# machine. POLICY defaults to the shared one (EXPHIL_SHARED, else ../shared). The CPU share is that of the whole VM, in
# percent of one core. The last row steps without a pause.
Code.require_file("support.exs", __DIR__)
alias ExPhil.Native.{Clock, Mamba}

defmodule Paced do
  @fps 60
  @turn 2 * @fps

  # Frames of one turn: the latencies in microseconds, without the first ten, in which the pace learns the rhythm.
  def turn(session, obs, frames \\ @turn) do
    {:ok, clock} = Clock.start(@fps)

    latencies =
      for frame <- 1..(frames + 10) do
        Clock.wait(clock)
        step(session, elem(obs, rem(frame, tuple_size(obs))))
      end

    Clock.stop(clock)
    Enum.drop(latencies, 10)
  end

  def step(session, obs) do
    {microseconds, {:ok, _}} = BenchSupport.timed(fn -> Mamba.step(session, obs) end)
    microseconds
  end

  # The VM's processor time so far, in seconds.
  def cpu do
    [_, rest] = "/proc/self/stat" |> File.read!() |> String.split(") ", parts: 2)
    fields = String.split(rest)
    (String.to_integer(Enum.at(fields, 11)) + String.to_integer(Enum.at(fields, 12))) / 100
  end

  def measured(run) do
    {cpu, time} = {cpu(), System.monotonic_time(:millisecond)}
    latencies = run.()
    {latencies, cpu() - cpu, (System.monotonic_time(:millisecond) - time) / 1000}
  end

  def row(name, turns) do
    latencies = Enum.flat_map(turns, &elem(&1, 0))
    [cpu, time] = for at <- [1, 2], do: turns |> Enum.map(&elem(&1, at)) |> Enum.sum()

    IO.puts(
      "#{String.pad_trailing(name, 16)} #{BenchSupport.percentiles(latencies)}, " <>
        "#{Float.round(100 * cpu / time, 1)}% of a core (#{length(latencies)} steps)"
    )

    latencies |> Enum.sort() |> BenchSupport.at(50)
  end
end

{backend, rest} = BenchSupport.arguments()
seconds = BenchSupport.integer(rest, 0, 60)
{:ok, model} = rest |> Enum.at(1, BenchSupport.policy()) |> Mamba.load(backend: backend)
IO.inspect(model)

obs = List.to_tuple(for seed <- 1..32, do: BenchSupport.floats(model.info.d_input, seed, 1.0, 0.0))
{:ok, plain} = Mamba.new_session(model)
{:ok, paced} = Mamba.new_session(model)
back_to_back = fn -> for frame <- 1..5000, do: Paced.step(plain, elem(obs, rem(frame, 32))) end
back_to_back.()

turns =
  for _ <- 1..max(1, div(seconds, 2)) do
    first = Paced.measured(fn -> Paced.turn(plain, obs) end)
    {:ok, _} = Mamba.pace(paced, 60)
    second = Paced.measured(fn -> Paced.turn(paced, obs) end)
    {:ok, _} = Mamba.pace(paced, nil)
    {first, second}
  end

without = Paced.row("plain", Enum.map(turns, &elem(&1, 0)))
with_pace = Paced.row("paced", Enum.map(turns, &elem(&1, 1)))
Paced.row("back to back", [Paced.measured(back_to_back)])
IO.puts("paced / plain at p50: #{Float.round(with_pace / without, 2)}")
