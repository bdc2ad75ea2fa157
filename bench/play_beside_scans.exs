# Play beside large calls: agents at a fixed rate, while other processes scan, load, prefill or run batches of
# windows without a pause. For each neighbour it prints what a step takes (p50, p99, longest), how late the VM woke
# the agent before it (p99, longest), the frames that were late, what the neighbours achieve against what they achieve alone in the same run, and the events of
# long_schedule that the VM reports.
#
#   mix run bench/play_beside_scans.exs [cuda|host] [SECONDS] [AGENTS] [LOOPS]
#
# A frame is late where its answer comes after the next frame is due. The policy is the shared one
# (EXPHIL_SHARED, else ../shared). Results: bench/results/play_beside_scans.md.
Code.require_file("support.exs", __DIR__)
Code.require_file("../test/support/play_beside.ex", __DIR__)
alias ExPhil.Native.Policy
alias ExPhil.Native.TestSupport.PlayBeside

defmodule PlayBesideScans do
  def row(name, frames, alone, beside, events) do
    [steps, woken] = for i <- [0, 1], do: frames |> Enum.map(&elem(&1, i)) |> Enum.sort()
    at = fn sorted, percent -> round(BenchSupport.at(sorted, percent)) end
    late = Enum.count(frames, &(elem(&1, 2) > PlayBeside.frame()))
    share = if alone > 0, do: "#{round(100 * beside / alone)}%", else: "-"

    cells = [
      name,
      at.(steps, 50),
      at.(steps, 99),
      at.(steps, 100),
      at.(woken, 99),
      at.(woken, 100),
      "#{late} of #{length(frames)}",
      Float.round(alone, 1),
      Float.round(beside, 1),
      share,
      events
    ]

    IO.puts("| " <> Enum.join(cells, " | ") <> " |")
  end

  # Counts what system_monitor reports.
  def monitor do
    pid = spawn_link(fn -> count(0) end)
    :erlang.system_monitor(pid, [{:long_schedule, 2}])
    pid
  end

  defp count(events) do
    receive do
      {:monitor, _, :long_schedule, _} ->
        count(events + 1)

      {:take, from} ->
        send(from, {:events, events})
        count(0)
    end
  end

  def take(monitor) do
    send(monitor, {:take, self()})

    receive do
      {:events, events} -> events
    end
  end
end

{backend, rest} = BenchSupport.arguments()

[seconds, agents, loops] =
  for {default, at} <- [{60, 0}, {16, 1}, {4, 2}], do: BenchSupport.integer(rest, at, default)

policy = BenchSupport.policy()
model = Policy.load!(policy, backend: backend)
%{backend: backend, d_input: d_input, device: device} = Policy.info!(model)
obs = PlayBeside.floats(d_input + 1) |> binary_part(0, d_input * 4)
rows = fn count -> :binary.copy(obs, count) end

neighbours = [
  {"nobody", 0, fn -> :ok end},
  {"#{loops} loops of scans 32x60x512x16", loops, PlayBeside.scan(32, 60, 512, 16, backend)},
  {"#{loops} loops of scans 8x1024x512x16", loops, PlayBeside.scan(8, 1024, 512, 16, backend)},
  {"#{loops} loops of 64 windows of 60 frames", loops,
   fn -> Policy.window!(model, {:f32, {64, 60, d_input}, rows.(64 * 60)}) end},
  {"#{loops} loops of prefills of 2,000 frames", loops,
   fn -> Policy.prefill!(Policy.new_session!(model), rows.(2000)) end},
  {"2 loops of loads", 2, fn -> Policy.load!(policy, backend: backend) end}
]

IO.puts("#{device.name}; #{agents} agents at 60 FPS for #{seconds} s beside each; microseconds\n")

IO.puts(
  "| beside | step p50 | p99 | longest | woken late p99 | longest | late frames | calls/s alone | beside play | share | long_schedule |"
)

IO.puts("|---|---|---|---|---|---|---|---|---|---|---|")
monitor = PlayBesideScans.monitor()

for {name, count, call} <- neighbours do
  alone =
    if count > 0 do
      loops = PlayBeside.start(call, count)
      Process.sleep(max(2000, div(seconds * 1000, 6)))
      PlayBeside.stop(loops)
    else
      0.0
    end

  _ = PlayBesideScans.take(monitor)
  loops = PlayBeside.start(call, count)
  Process.sleep(200)
  frames = PlayBeside.play(model, agents, seconds, obs)
  beside = PlayBeside.stop(loops)
  PlayBesideScans.row(name, frames, alone, beside, PlayBesideScans.take(monitor))
end
