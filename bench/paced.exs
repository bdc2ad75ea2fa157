# What a game sees: one frame once every 16.67 ms, in turns in one run: plain, paced (a session with `fps: 60`, and a clock that
# is not its own), warmed (`Clock.start(session)`, which on CUDA prepares the process that steps), and on
# CUDA armed (the same clock with `latency: :armed`, whose steps are launched before the tick).
#
#   mix run bench/paced.exs [cuda|host] [f32] [bf16] [f16] [int8] [SECONDS] [POLICY]
#
# SECONDS (60) is the time of each row; rows take turns of two seconds, so that all see the same machine. POLICY is
# the one that steps; it defaults to the shared one (EXPHIL_SHARED, else ../shared). `act` plays ExPhil's shared policy
# with a carried state. The CPU share is that of the whole VM, in percent of one core. "back to back" steps
# without a pause. "ping" is a message to another process and its answer, once a millisecond: alone, and
# while four agents play at 60 FPS; the last row counts the events of long_schedule (2 ms) that the VM reported.
Code.require_file("support.exs", __DIR__)
alias ExPhil.Native.{Clock, Policy, Safetensors}

defmodule Paced do
  @fps 60
  @turn 2 * @fps

  # Frames of one turn: the latencies in microseconds, without the first ten, in which the pace learns the rhythm.
  # The clock is that of `fps_or_session`.
  def turn(call, obs, frames \\ @turn, fps_or_session \\ @fps) do
    {:ok, clock} = Clock.start(fps_or_session)

    latencies =
      for frame <- 1..(frames + 10) do
        Clock.wait(clock)
        timed(call, elem(obs, rem(frame, tuple_size(obs))))
      end

    Clock.stop(clock)
    Enum.drop(latencies, 10)
  end

  def timed(call, obs) do
    {microseconds, {:ok, _}} = BenchSupport.timed(fn -> call.(obs) end)
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
      "#{String.pad_trailing(name, 26)} #{BenchSupport.percentiles(latencies)}, longest #{Float.round(Enum.max(latencies), 1)}, " <>
        "#{Float.round(100 * cpu / time, 1)}% of a core (#{length(latencies)} calls)"
    )

    latencies |> Enum.sort() |> BenchSupport.at(50)
  end

  # Round trips to another process, once a millisecond.
  def pings(seconds) do
    echo = spawn_link(&echo/0)
    {:ok, clock} = Clock.start(1000)

    trips =
      for _ <- 1..(seconds * 1000) do
        Clock.wait(clock)
        timed(&ping(echo, &1), :ping)
      end

    Clock.stop(clock)
    Process.unlink(echo)
    Process.exit(echo, :kill)
    trips
  end

  defp ping(echo, message) do
    send(echo, {self(), message})

    receive do
      ^message -> {:ok, message}
    end
  end

  defp echo do
    receive do
      {from, message} -> send(from, message)
    end

    echo()
  end

  def long_schedules do
    receive do
      {:monitor, _, :long_schedule, _} -> 1 + long_schedules()
    after
      0 -> 0
    end
  end
end

{backend, rest} = BenchSupport.arguments()
{names, rest} = Enum.split_with(rest, &(&1 in ~w(f32 bf16 f16 int8)))
precisions = if names == [], do: [:f32], else: Enum.map(names, &String.to_atom/1)
seconds = BenchSupport.integer(rest, 0, 60)
path = Enum.at(rest, 1, BenchSupport.policy())
models = for precision <- precisions, do: Policy.load!(path, backend: backend, precision: precision)
model = hd(models)
policy = Policy.load!(BenchSupport.shared("exphil/exphil_policy/policy.bin"), backend: backend)
for model <- models, do: IO.inspect({model, model.info.precision, model.info.resident_bytes})

obs = List.to_tuple(for seed <- 1..32, do: BenchSupport.floats(model.info.d_input, seed, 1.0, 0.0))
{:f32, {_, width}, bytes} = Safetensors.read!(BenchSupport.shared("exphil/frames600.safetensors"))["obs"]
frames = List.to_tuple(for <<frame::binary-size(width * 4) <- bytes>>, do: frame)

options = %{plain: [], paced: [fps: 60], warmed: [fps: 60], armed: [fps: 60, latency: :armed]}
kinds = [:plain, :paced, :warmed] ++ if(backend == :cuda, do: [:armed], else: [])

stepping =
  for model <- models do
    {"step #{model.info.precision}", {&Policy.step/2, obs, &Policy.new_session!(model, &1)}}
  end

acting = {&Policy.act/2, frames, &Policy.new_session!(policy, [window: :none] ++ &1)}

rows =
  for {name, {call, inputs, new}} <- stepping ++ [{"act", acting}], kind <- kinds do
    session = new.(Map.fetch!(options, kind))
    for frame <- 1..300, do: {:ok, _} = call.(session, elem(inputs, rem(frame, 32)))
    {"#{name}, #{kind}", &call.(session, &1), inputs, session, kind}
  end

turns =
  for _ <- 1..max(1, div(seconds, 2)), {name, call, inputs, session, kind} <- rows do
    clock = if kind in [:warmed, :armed], do: session, else: 60
    {name, Paced.measured(fn -> Paced.turn(call, inputs, 120, clock) end)}
  end

medians =
  for {name, _, _, _, _} <- rows do
    Paced.row(name, for({^name, measured} <- turns, do: measured))
  end

[plain, paced, warmed | _] = medians

for {"step " <> name, step, _, _, kind} <- rows, kind in [:plain, :armed] do
  call = fn -> for frame <- 1..5000, do: Paced.timed(step, elem(obs, rem(frame, 32))) end
  Paced.row("back to back, " <> name, [Paced.measured(call)])
end

Paced.row("ping", [Paced.measured(fn -> Paced.pings(min(seconds, 20)) end)])
:erlang.system_monitor(self(), [{:long_schedule, 2}])

players =
  for _ <- 1..4 do
    session = Policy.new_session!(model)

    spawn_link(fn ->
      Stream.repeatedly(fn -> Paced.turn(&Policy.step(session, &1), obs, 600) end) |> Stream.run()
    end)
  end

Process.sleep(100)
Paced.row("ping beside play", [Paced.measured(fn -> Paced.pings(min(seconds, 20)) end)])

for player <- players do
  Process.unlink(player)
  Process.exit(player, :kill)
end

IO.puts("long_schedule of 2 ms: #{Paced.long_schedules()} events")

IO.puts(
  "step at p50: paced / plain #{Float.round(paced / plain, 2)}, warmed / plain #{Float.round(warmed / plain, 2)}"
)
