# What this library holds of the VM's normal schedulers: agents play at 60 FPS beside processes that make every kind of
# large call, while the VM reports what held a scheduler for 2 ms or longer (erlang:system_monitor, long_schedule).
#
#   mix run test/long_schedule.exs POLICY [SECONDS] [MILLISECONDS]
#
# An event counts where the process was scheduled in or out inside one of this library's modules: a call that is queued
# is scheduled out in the receive of Queue, not in the NIF. The system may take the core of a scheduler away at any place,
# so that a busy machine has events that no call has caused. Prints the calls and the events of each kind of process.
alias ExPhil.Native.{AssociativeScan, Clock, Mamba, SelectiveScan}

[policy | rest] = System.argv()

[seconds, limit] =
  for {default, at} <- [{10, 0}, {2, 1}], do: rest |> Enum.at(at, "#{default}") |> String.to_integer()

model = Mamba.load!(policy, backend: :host)
%{d_input: d_input} = Mamba.info(model)
floats = fn count -> :binary.copy(<<0.1::float-32-little>>, count) end
obs = floats.(d_input)
x = {:f32, {8, 256, 512}, floats.(8 * 256 * 512)}

{b, a} =
  {{:f32, {8, 256, 16}, floats.(8 * 256 * 16)},
   {:f32, {512, 16}, :binary.copy(<<-0.5::float-32-little>>, 512 * 16)}}

windows = {:f32, {16, 60, d_input}, floats.(16 * 60 * d_input)}
session = Mamba.new_session!(model)

kinds = [
  {:step, 4, fn -> Process.sleep(16) && Mamba.step!(Process.get(:session) || session, obs) end},
  {:wait, 1, fn -> Clock.wait(Process.get(:clock)) end},
  {:scan, 1, fn -> SelectiveScan.scan(x, x, a, b, b, backend: :host) end},
  {:grad, 1, fn -> SelectiveScan.grad(x, x, x, a, b, b, backend: :host) end},
  {:cumsum, 1, fn -> AssociativeScan.cumsum(x, axis: 1, backend: :host) end},
  {:window, 1, fn -> Mamba.window!(model, windows) end},
  {:prefill, 1, fn -> Mamba.prefill!(Mamba.new_session!(model), floats.(500 * d_input)) end},
  {:load, 1, fn -> Mamba.load!(policy, backend: :host) end}
]

counters = :counters.new(length(kinds), [])

workers =
  for {{name, count, call}, at} <- Enum.with_index(kinds, 1), _ <- 1..count, into: %{} do
    loop = fn loop ->
      call.()
      :counters.add(counters, at, 1)
      loop.(loop)
    end

    start = fn ->
      if name == :step, do: Process.put(:session, Mamba.new_session!(model))
      if name == :wait, do: Process.put(:clock, Clock.start!(60, warm: session))
      loop.(loop)
    end

    {spawn_link(start), name}
  end

Process.sleep(500)
:erlang.system_monitor(self(), [{:long_schedule, limit}])
Process.sleep(seconds * 1000)
:erlang.system_monitor(:undefined)

collect = fn collect, events ->
  receive do
    {:monitor, pid, :long_schedule, info} -> collect.(collect, [{workers[pid], info} | events])
  after
    100 -> events
  end
end

events = collect.(collect, [])

ours? = fn
  {module, _, _} -> String.starts_with?("#{module}", "Elixir.ExPhil.Native.")
  :undefined -> false
end

in_library? = fn info -> ours?.(info[:in]) or ours?.(info[:out]) end

for {{name, _, _}, at} <- Enum.with_index(kinds, 1) do
  own = for {^name, info} <- events, in_library?.(info), do: info
  IO.puts("#{name}: #{:counters.get(counters, at)} calls, #{length(own)} events")
  for info <- Enum.take(own, 5), do: IO.puts("  #{inspect(info)}")
end

IO.puts("elsewhere: #{length(for {_, info} <- events, not in_library?.(info), do: info)} events")
