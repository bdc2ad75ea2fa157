# What a game sees: one step once every 16.67 ms, with and without a pace, in turns in one run.
#
#   mix run bench/paced.exs [cuda|host] [SECONDS] [POLICY]
#
# SECONDS (60) is the time of each of the two; they alternate every two seconds, so that both see the same
# machine. POLICY defaults to the shared one (EXPHIL_SHARED, else ../shared). The CPU share is that of the whole VM, in
# percent of one core. The last row steps without a pause.
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
    begin = System.monotonic_time(:nanosecond)
    {:ok, _} = Mamba.step(session, obs)
    (System.monotonic_time(:nanosecond) - begin) / 1000
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
    latencies = turns |> Enum.flat_map(&elem(&1, 0)) |> Enum.sort()
    [cpu, time] = for at <- [1, 2], do: turns |> Enum.map(&elem(&1, at)) |> Enum.sum()
    count = length(latencies)
    at = fn share -> latencies |> Enum.at(min(count - 1, trunc(count * share))) |> Float.round(1) end

    IO.puts(
      "#{String.pad_trailing(name, 16)} p50 #{at.(0.5)}  p90 #{at.(0.9)}  p99 #{at.(0.99)} us, " <>
        "#{Float.round(100 * cpu / time, 1)}% of a core (#{count} steps)"
    )

    at.(0.5)
  end
end

{backend, rest} =
  case System.argv() do
    [name | rest] when name in ["cuda", "host"] -> {String.to_atom(name), rest}
    rest -> {:auto, rest}
  end

seconds = rest |> Enum.at(0, "60") |> String.to_integer()
shared = System.get_env("EXPHIL_SHARED", "../shared")

{:ok, model} =
  rest |> Enum.at(1, Path.join(shared, "melee/policy.safetensors")) |> Mamba.load(backend: backend)

IO.inspect(model)

obs =
  for seed <- 1..32 do
    {floats, _} =
      Enum.map_reduce(1..model.info.d_input, :rand.seed_s(:exsss, seed), fn _, s -> :rand.uniform_s(s) end)

    for u <- floats, into: <<>>, do: <<u - 0.5::float-32-little>>
  end
  |> List.to_tuple()

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
