# What this library holds of the VM's normal schedulers: agents play at 60 FPS while the VM reports what held a scheduler
# for 2 ms or longer (erlang:system_monitor, long_schedule).
#
#   mix run test/long_schedule.exs POLICY [SECONDS] [MILLISECONDS] [host|cuda] [calls|play]
#
# On a machine of few cores with ELIXIR_ERL_OPTIONS="+sbt db": otherwise Linux lets schedulers wait for one core while another
# is idle (bench/results/paced.md).
#
# calls  a few agents beside processes that make every kind of large call without a pause (the default)
# play   sixteen agents of every kind beside processes that only make garbage. Each agent makes garbage too, takes its ticks
#        from a Clock, and counts the frames that were late (answered after the next tick) or missed (ticks skipped), and the
#        microseconds from tick to answer. The memory of the VM's process is printed every minute
#
# An event counts where the process was scheduled in or out inside one of this library's modules: a call that is queued
# is scheduled out in the receive of Queue, not in the NIF. The system may take the core of a scheduler away at any place,
# so that a busy machine has events that no call has caused. So the last line says what this library's calls held of the
# normal schedulers: the longest in processor time of the scheduler's thread, how many took MILLISECONDS of it, and the
# longest with what the system took away. Prints the calls and the events of each kind of process.
alias ExPhil.Native.{AssociativeScan, Clock, Policy, SelectiveScan}
alias ExPhil.Native.Tools.Reference

defmodule LongSchedule do
  # Each kind: its name, how many processes, and a function that runs in each and returns the call to repeat.

  def calls(policy, backend) do
    model = Policy.load!(policy, backend: backend)
    d_input = model.info.d_input
    obs = floats(d_input)
    x = {:f32, {8, 256, 512}, floats(8 * 256 * 512)}
    b = {:f32, {8, 256, 16}, floats(8 * 256 * 16)}
    a = {:f32, {512, 16}, :binary.copy(<<-0.5::float-32-little>>, 512 * 16)}
    windows = {:f32, {16, 60, d_input}, floats(16 * 60 * d_input)}
    on = [backend: backend]

    step = fn ->
      session = Policy.new_session!(model)
      fn -> Process.sleep(16) && Policy.step!(session, obs) end
    end

    wait = fn ->
      clock = Clock.start!(Policy.new_session!(model, fps: 60))
      fn -> Clock.wait(clock) end
    end

    repeat = fn call -> fn -> call end end

    [
      {:step, 4, step},
      {:wait, 1, wait},
      {:scan, 1, repeat.(fn -> SelectiveScan.scan(x, x, a, b, b, on) end)},
      {:grad, 1, repeat.(fn -> SelectiveScan.grad(x, x, x, a, b, b, on) end)},
      {:cumsum, 1, repeat.(fn -> AssociativeScan.cumsum(x, [axis: 1] ++ on) end)},
      {:window, 1, repeat.(fn -> Policy.window!(model, windows) end)},
      {:prefill, 1, repeat.(fn -> Policy.prefill!(Policy.new_session!(model), floats(500 * d_input)) end)},
      {:load, 1, repeat.(fn -> Policy.load!(policy, on) end)}
    ]
  end

  def play(policy, backend) do
    models =
      for precision <- [:f32, :bf16, :int8],
          into: %{},
          do: {precision, Policy.load!(policy, backend: backend, precision: precision)}

    obs = floats(models.f32.info.d_input)
    step = fn session, _frame -> Policy.step!(session, obs) end

    with_snapshots = fn session, frame ->
      Policy.step!(session, obs)
      if rem(frame, 4) == 0, do: Policy.snapshot!(session)
    end

    with_rollbacks = fn session, frame ->
      Policy.step!(session, obs)
      if rem(frame, 10) == 0, do: Policy.resimulate!(session, 3, :binary.copy(obs, 3))
    end

    [
      {:plain, 3, agent(models.f32, [], step)},
      {:snapshot, 2, agent(models.f32, [], with_snapshots)},
      {:paced, 2, agent(models.f32, [fps: 60], step)},
      {:warmed, 2, agent(models.f32, [:own_clock, fps: 60], step)},
      {:history, 2, agent(models.f32, [history: 8], with_rollbacks)},
      {:window, 2, agent(models.f32, [window: 20, history: 4], with_rollbacks)},
      {:bf16, 2, agent(models.bf16, [], step)},
      {:int8, 1, agent(models.int8, [history: 8], with_rollbacks)},
      {:garbage, 2, fn -> fn -> make_garbage(20_000) && Process.sleep(20) end end}
    ]
  end

  # The call is one frame. Its process has a phase of its own, and garbage of a few frames.
  defp agent(model, options, play) do
    fn ->
      {own, options} = Enum.split_with(options, &(&1 == :own_clock))
      session = Policy.new_session!(model, options)
      for frame <- 1..30, do: play.(session, frame)
      Process.sleep(:rand.uniform(17))
      clock = Clock.start!(if(own == [], do: 60, else: session))
      fn -> frame(clock, Process.get(:statistics), &play.(session, &1)) end
    end
  end

  defp frame(clock, statistics, play) do
    last = Process.get(:tick)
    tick = Clock.wait(clock)
    play.(tick)
    passed = div(System.monotonic_time(:nanosecond) - Clock.due(clock, tick), 1000)
    count(statistics, passed, if(last, do: tick - last - 1, else: 0))
    Process.put(:tick, tick)
    Process.put(:garbage, [make_garbage(500) | Enum.take(Process.get(:garbage, []), 5)])
    if rem(tick, 30) == 0, do: :erlang.garbage_collect()
  end

  defp make_garbage(count),
    do: {Enum.map(1..count, &{&1, &1}), for(_ <- 1..5, do: :binary.copy(<<0>>, 10_000))}

  # Statistics of the agents of one kind: late frames, missed ones, and a histogram of the time to the answer.
  @step 10
  @steps 10_000
  @late_us 16_667

  def statistics, do: :counters.new(2 + @steps, [])

  defp count(statistics, passed, missed) do
    if passed > @late_us, do: :counters.add(statistics, 1, 1)
    if missed > 0, do: :counters.add(statistics, 2, missed)
    :counters.add(statistics, 3 + min(div(passed, @step), @steps - 1), 1)
  end

  def sum(all) do
    sum = statistics()
    for one <- all, at <- 1..(2 + @steps), do: :counters.add(sum, at, :counters.get(one, at))
    sum
  end

  # nil where no frame was counted.
  def summary(statistics) do
    counts = for at <- 1..@steps, do: :counters.get(statistics, 2 + at)
    [late, missed, frames] = [:counters.get(statistics, 1), :counters.get(statistics, 2), Enum.sum(counts)]
    [p50, p99, longest] = for share <- [0.5, 0.99, 1.0], do: percentile(counts, share * frames, 0)

    if frames > 0,
      do: "  #{frames} frames, #{late} late, #{missed} missed; p50 #{p50}, p99 #{p99}, longest #{longest} us"
  end

  defp percentile([count | rest], left, at) when count < left and rest != [],
    do: percentile(rest, left - count, at + 1)

  defp percentile(_counts, _left, at), do: @step * (at + 1)

  # Sleeps, and prints the memory at the beginning, every minute and at the end.
  def watch(seconds), do: watch(0, seconds)

  defp watch(passed, seconds) do
    [rss] = Regex.run(~r/VmRSS:\s+(\d+)/, File.read!("/proc/self/status"), capture: :all_but_first)
    vm = div(:erlang.memory(:total), 1_000_000)
    IO.puts("memory after #{passed} s: #{div(String.to_integer(rss), 1000)} MB, #{vm} MB of it the VM's")
    next = min(60, seconds - passed)
    Process.sleep(next * 1000)
    if next > 0, do: watch(passed + next, seconds)
  end

  def floats(count), do: :binary.copy(<<0.1::float-32-little>>, count)

  def repeat(call, counters, at) do
    call.()
    :counters.add(counters, at, 1)
    repeat(call, counters, at)
  end

  def in_library?(info), do: ours?(info[:in]) or ours?(info[:out])

  defp ours?({module, _, _}), do: String.starts_with?("#{module}", "Elixir.ExPhil.Native.")
  defp ours?(:undefined), do: false

  def events(found) do
    receive do
      {:monitor, pid, :long_schedule, info} -> events([{pid, info} | found])
    after
      100 -> found
    end
  end
end

[policy | rest] = System.argv()

[seconds, limit] =
  for {default, at} <- [{10, 0}, {2, 1}], do: rest |> Enum.at(at, "#{default}") |> String.to_integer()

backend = Map.fetch!(%{"host" => :host, "cuda" => :cuda}, Enum.at(rest, 2, "host"))

kinds =
  case Enum.at(rest, 3, "calls") do
    "calls" -> LongSchedule.calls(policy, backend)
    "play" -> LongSchedule.play(policy, backend)
  end

counters = :counters.new(length(kinds), [])
statistics = for {name, _, _} <- kinds, into: %{}, do: {name, LongSchedule.statistics()}

workers =
  for {{name, count, prepare}, at} <- Enum.with_index(kinds, 1), _ <- 1..count, into: %{} do
    start = fn ->
      Process.put(:statistics, statistics[name])
      LongSchedule.repeat(prepare.(), counters, at)
    end

    {spawn_link(start), name}
  end

Process.sleep(500)
:erlang.system_monitor(self(), [{:long_schedule, limit}])
Reference.held_calls!(limit * 1_000_000)
LongSchedule.watch(seconds)
held = Reference.held_calls!(limit * 1_000_000)
:erlang.system_monitor(:undefined)
events = for {pid, info} <- LongSchedule.events([]), do: {workers[pid], info}

for {{name, _, _}, at} <- Enum.with_index(kinds, 1) do
  own = for {^name, info} <- events, LongSchedule.in_library?(info), do: info
  IO.puts("#{name}: #{:counters.get(counters, at)} calls, #{length(own)} events")
  if frames = LongSchedule.summary(statistics[name]), do: IO.puts(frames)
  for info <- Enum.take(own, 5), do: IO.puts("  #{inspect(info)}")
end

all = statistics |> Map.values() |> LongSchedule.sum() |> LongSchedule.summary()
if all, do: IO.puts("all agents:\n#{all}")
ours = Enum.count(events, fn {_, info} -> LongSchedule.in_library?(info) end)
IO.puts("in this library: #{ours} events\nelsewhere: #{length(events) - ours} events")

IO.puts(
  "calls on normal schedulers: #{held.calls}, #{held.long_calls} of them with #{limit} ms of processor time; longest " <>
    "#{div(held.longest_processor_time, 1000)} us of processor time, #{div(held.longest_time, 1000)} us in all"
)
