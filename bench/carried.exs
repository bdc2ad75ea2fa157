# A step of any policy for an Elixir caller with a carried state, whatever the file's window: back to back, plain and armed, and
# as a step of a window session; frames of many agents in one call, of a list of their sessions and of a group; then once every
# 16.67 ms steps, plain, warmed and armed (bench/paced.exs has these names), those of window sessions, and frames of groups.
#
#   mix run bench/carried.exs [cuda|host] [POLICY] [RUNS] [SECONDS]
#
# POLICY defaults to the shared one (EXPHIL_SHARED, else ../shared), RUNS to 3000, SECONDS (of each row at 60 FPS) to 6. Armed
# steps need CUDA.
Code.require_file("support.exs", __DIR__)
alias ExPhil.Native.{Clock, Policy}

{backend, rest} = BenchSupport.arguments()
policy = Policy.load!(Enum.at(rest, 0, BenchSupport.policy()), backend: backend)
runs = BenchSupport.integer(rest, 1, 3000)
frames = 60 * BenchSupport.integer(rest, 2, 6)
info = Policy.info!(policy)
IO.puts("#{inspect(policy)}")

obs = for(seed <- 1..64, do: BenchSupport.floats(info.d_input, seed, 2.0, 0.0)) |> List.to_tuple()
pick = fn run -> elem(obs, rem(run, 64)) end
armed = if backend == :cuda, do: [armed: [window: :none, latency: :armed]], else: []

for {name, options} <- [plain: [window: :none]] ++ armed ++ [window: [window: 60]] do
  session = Policy.new_session!(policy, options)
  BenchSupport.row("#{name}, back to back", runs, fn run -> Policy.step!(session, pick.(run)) end, warm: 100)
end

groups =
  for agents <- [64, 256, 1024] do
    sessions = for _ <- 1..agents, do: Policy.new_session!(policy, window: :none)
    batches = for k <- 0..7, do: for(agent <- 1..agents, into: <<>>, do: pick.(agent + k))
    batches = List.to_tuple(batches)

    for {name, together} <- [{"", sessions}, {", a group", Policy.group!(sessions)}] do
      name = "#{agents} agents in one call#{name}"
      call = fn run -> Policy.step_batch!(together, elem(batches, rem(run, 8))) end
      BenchSupport.row(name, div(runs, 6), call)
      {name, call}
    end
    |> List.last()
  end

# The first ten frames, in which the pace learns the rhythm, are left out.
paced = fn name, clock_of, call ->
  {:ok, clock} = Clock.start(clock_of)

  times =
    for run <- 1..(frames + 10) do
      Clock.wait(clock)
      {microseconds, _} = BenchSupport.timed(fn -> call.(run) end)
      microseconds
    end

  Clock.stop(clock)

  IO.puts(
    "#{String.pad_trailing("#{name}, at 60 FPS", 46)} #{BenchSupport.percentiles(Enum.drop(times, 10))}"
  )
end

for {state, prefix} <- [{[window: :none], ""}, {[window: 60], "window, "}],
    {name, options} <-
      [plain: [], warmed: [fps: 60]] ++ if(armed == [], do: [], else: [armed: [fps: 60, latency: :armed]]) do
  session = Policy.new_session!(policy, state ++ options)
  paced.("#{prefix}#{name}", if(options == [], do: 60, else: session), &Policy.step!(session, pick.(&1)))
end

for {name, call} <- groups, do: paced.(name, 60, call)
