# Processes at 60 FPS, each with a session of its own of one policy: which frames are late, what a frame takes, and how many
# frames a launch has. A frame is late where its answer comes after the next frame is due. Each process has a phase of its own,
# and wakes by the VM's timers, which have milliseconds: what a process was woken late is part of its latency.
#
#   mix run bench/fleet_frames.exs [cuda|host] AGENTS[,AGENTS...] [SECONDS] [gather|alone|both] [step|act|window]
#
# The policy is the shared one (EXPHIL_SHARED, else ../shared); for act it is EXPHIL_FLEET_POLICY, one with ExPhil's heads.
# EXPHIL_FLEET_POLICY names another policy.
Code.require_file("support.exs", __DIR__)
alias ExPhil.Native.Policy

defmodule FleetFrames do
  # Microseconds of a frame at 60 FPS.
  @frame 16_667
  # Frames before the first that counts, in which the sessions' memory is touched for the first time.
  @untimed 60

  # The agents' latencies, from when a frame was due to its answer, and from the call to its answer.
  def play(policy, agents, seconds, call, options, obs) do
    start = System.monotonic_time(:microsecond) + 1_000_000 + 500 * agents
    frames = @untimed + 60 * seconds

    players =
      for agent <- 1..agents do
        Task.async(fn ->
          session = Policy.new_session!(policy, options)
          phase = start + div(agent * @frame, agents)
          for frame <- 0..(frames - 1), do: frame(session, call, obs, phase + frame * @frame)
        end)
      end

    players |> Task.await_many(:infinity) |> Enum.flat_map(&Enum.drop(&1, @untimed))
  end

  defp frame(session, call, obs, due) do
    wait = div(due - System.monotonic_time(:microsecond), 1000)
    if wait > 0, do: Process.sleep(wait)
    begin = System.monotonic_time(:microsecond)
    {:ok, _} = call.(session, obs)
    done = System.monotonic_time(:microsecond)
    {done - due, done - begin}
  end

  def row(agents, name, times, before, now) do
    late = Enum.count(times, fn {latency, _} -> latency > @frame end)
    [latency, step] = for i <- [0, 1], do: times |> Enum.map(&elem(&1, i)) |> Enum.sort()
    at = fn sorted -> Enum.map([50, 99, 100], &round(BenchSupport.at(sorted, &1))) end
    cells = [agents, name, "#{late} of #{length(times)}"] ++ at.(latency) ++ at.(step)
    IO.puts("| " <> Enum.join(cells ++ [per_launch(before, now)], " | ") <> " |")
  end

  defp per_launch(nil, nil), do: "-"

  defp per_launch(before, now) do
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
IO.puts("#{backend}; each for #{seconds} s at 60 FPS; microseconds; latency is from when a frame is due\n")

IO.puts(
  "| agents | frames are | late | latency p50 | p99 | longest | step p50 | p99 | longest | frames a launch |"
)

IO.puts("|---|---|---|---|---|---|---|---|---|---|")

for agents <- fleets, name <- names do
  policy = Policy.load!(file, backend: backend, max_sessions: max(agents, 1024), gather: name == :gather)
  obs = BenchSupport.floats(Policy.info!(policy).d_input, 1, 2.0, 0.0)
  before = Policy.info!(policy).gathered
  times = FleetFrames.play(policy, agents, seconds, call, options, obs)
  FleetFrames.row(agents, name, times, before, Policy.info!(policy).gathered)
end
