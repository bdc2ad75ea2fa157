# Processes at 60 FPS, each with a session of its own of one policy: which frames are late, what a frame takes, and how many
# frames a launch has. A frame is late where its answer comes after the next frame is due. Each process has a phase of its own,
# and wakes by the VM's timers, which have milliseconds: what a process was woken late is part of its latency.
#
#   mix run bench/fleet_frames.exs [cuda|host] AGENTS[,AGENTS...] [SECONDS] [gather|alone|both|none] [step|act|window]
#
# `none` calls no policy: what the VM's timers and schedulers do with so many processes on this machine.
# The policy is the shared one (EXPHIL_SHARED, else ../shared); for act it is EXPHIL_FLEET_POLICY, one with ExPhil's heads.
# EXPHIL_FLEET_POLICY names another policy, EXPHIL_FLEET_PRECISION its precision.
Code.require_file("support.exs", __DIR__)
alias ExPhil.Native.Policy

# What all processes measured, in counters that are there before the first frame: a process that kept its times in a list would
# collect garbage in the middle of its frames, and thousands of such lists would be copied at the end, while others still play.
defmodule FleetTimes do
  # Microseconds of a bucket, and how many there are: to 200 ms. The last has what is longer.
  @width 10
  @buckets 20_000
  # Slots of the run in which frames were late: bursts are few slots.
  @slot 100_000

  def new(seconds) do
    counters = fn count -> :counters.new(count, [:write_concurrency]) end

    %{
      latency: counters.(@buckets),
      step: counters.(@buckets),
      late: counters.(div(seconds * 1_000_000, @slot) + 20)
    }
  end

  def add(times, latency, step) do
    :counters.add(times.latency, bucket(latency), 1)
    :counters.add(times.step, bucket(step), 1)
  end

  # What is late after the end goes into the last slot.
  def add_late(times, since_start) do
    slot = 1 + div(max(since_start, 0), @slot)
    :counters.add(times.late, min(slot, :counters.info(times.late).size), 1)
  end

  # The frames that were late, and the tenths of seconds that have them.
  def late(times) do
    counts = for i <- 1..:counters.info(times.late).size, do: :counters.get(times.late, i)
    {Enum.sum(counts), Enum.count(counts, &(&1 > 0))}
  end

  # The upper end of the bucket that has the percentile.
  def percentile(counters, percent) do
    counts = for i <- 1..@buckets, do: :counters.get(counters, i)
    rank = Enum.sum(counts) * percent / 100
    below = counts |> Enum.scan(&+/2) |> Enum.count(&(&1 < rank))
    (below + 1) * @width
  end

  defp bucket(microseconds), do: 1 + min(div(max(microseconds, 0), @width), @buckets - 1)
end

defmodule FleetFrames do
  # Microseconds of a frame at 60 FPS.
  @frame 16_667
  # Frames before the first that counts, in which the sessions' memory is touched for the first time.
  @untimed 60

  # The times, the longest latency and step, and the processor's microseconds of a frame, the VM's and the process's included.
  # before_frames: called when the frames that count begin.
  def play(agents, seconds, new_call, before_frames) do
    times = FleetTimes.new(seconds + 1)
    frames = 60 * seconds
    parent = self()

    players =
      for agent <- 0..(agents - 1) do
        spawn_monitor(fn ->
          call = new_call.()
          send(parent, :ready)

          receive do
            {:start, start} ->
              phase = start + div(agent * @frame, agents)
              exit({:played, player(call, times, start, phase, -@untimed, frames, {0, 0})})
          end
        end)
      end

    for _ <- players do
      receive do
        :ready -> :ok
        {:DOWN, _, _, _, reason} -> raise "a process that plays ended: #{inspect(reason)}"
      end
    end

    start = now() + 500_000 + @untimed * @frame
    for {pid, _} <- players, do: send(pid, {:start, start})
    sleep_until(start)
    before_frames.()
    {before, _} = :erlang.statistics(:runtime)
    longest = for _ <- players, do: longest()
    {spent, _} = :erlang.statistics(:runtime)
    {latencies, steps} = Enum.unzip(longest)
    {times, Enum.max(latencies), Enum.max(steps), (spent - before) * 1000 / (agents * frames)}
  end

  defp longest do
    receive do
      {:DOWN, _, _, _, {:played, longest}} -> longest
      {:DOWN, _, _, _, reason} -> raise "a process that plays ended: #{inspect(reason)}"
    end
  end

  # From when a frame was due to its answer, and from the call to its answer. It keeps no time on its heap.
  defp player(_call, _times, _start, _phase, frames, frames, longest), do: longest

  defp player(call, times, start, phase, frame, frames, {latency, step}) do
    due = phase + frame * @frame
    sleep_until(due)
    begin = now()
    call.()
    done = now()

    if frame >= 0 do
      FleetTimes.add(times, done - due, done - begin)
      if done - due > @frame, do: FleetTimes.add_late(times, done - start)

      player(
        call,
        times,
        start,
        phase,
        frame + 1,
        frames,
        {max(latency, done - due), max(step, done - begin)}
      )
    else
      player(call, times, start, phase, frame + 1, frames, {0, 0})
    end
  end

  defp now, do: System.monotonic_time(:microsecond)

  defp sleep_until(due) do
    wait = div(due - now(), 1000)
    if wait > 0, do: Process.sleep(wait)
  end

  def row(agents, seconds, name, {times, latency, step, processor}, launches) do
    {late, slots} = FleetTimes.late(times)
    at = fn counters -> Enum.map([50, 99], &FleetTimes.percentile(counters, &1)) end

    cells =
      [agents, name, "#{late} of #{agents * 60 * seconds}", slots] ++
        at.(times.latency) ++ [latency] ++ at.(times.step) ++ [step, Float.round(processor, 1), launches]

    IO.puts("| " <> Enum.join(cells, " | ") <> " |")
  end

  def per_launch(nil, nil), do: "-"

  def per_launch(before, now) do
    launches = now.launches - before.launches
    "#{Float.round((now.frames - before.frames) / max(launches, 1), 1)}, at most #{now.most}"
  end
end

{backend, rest} = BenchSupport.arguments()
fleets = rest |> Enum.at(0, "256") |> String.split(",") |> Enum.map(&String.to_integer/1)
seconds = BenchSupport.integer(rest, 1, 10)

names =
  case Enum.at(rest, 2, "both") do
    "both" -> [:alone, :gather]
    name -> [String.to_atom(name)]
  end

{call, options} =
  case Enum.at(rest, 3, "step") do
    "step" -> {&Policy.step/2, [window: :none]}
    "act" -> {&Policy.act/2, [window: :none]}
    "window" -> {&Policy.step/2, [window: 60]}
  end

file = System.get_env("EXPHIL_FLEET_POLICY") || BenchSupport.policy()
precision = String.to_atom(System.get_env("EXPHIL_FLEET_PRECISION", "f32"))
IO.puts("#{backend}; each for #{seconds} s at 60 FPS; microseconds; latency is from when a frame is due\n")

IO.puts(
  "| agents | frames are | late | in tenths of a second | latency p50 | p99 | longest | step p50 | p99 | longest | " <>
    "processor a frame | frames a launch |"
)

IO.puts("|---|---|---|---|---|---|---|---|---|---|---|---|")

for agents <- fleets, name <- names do
  policy =
    Policy.load!(file,
      backend: backend,
      precision: precision,
      max_sessions: max(agents, 1024),
      gather: name == :gather
    )

  obs = BenchSupport.floats(Policy.info!(policy).d_input, 1, 2.0, 0.0)
  gathered = fn -> Policy.info!(policy).gathered end

  new_call = fn ->
    if name == :none do
      fn -> :ok end
    else
      session = Policy.new_session!(policy, options)
      fn -> {:ok, _} = call.(session, obs) end
    end
  end

  played = FleetFrames.play(agents, seconds, new_call, fn -> Process.put(:before, gathered.()) end)
  FleetFrames.row(agents, seconds, name, played, FleetFrames.per_launch(Process.get(:before), gathered.()))
end
