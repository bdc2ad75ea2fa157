# Latency for an Elixir caller: the policy's calls, scan/5 from binaries to a binary, and loading.
#
#   mix run bench/latency.exs [cuda|host] [POLICY] [RUNS]
#
# POLICY defaults to the shared one (EXPHIL_SHARED, else ../shared). Inputs change from call to call. The load times
# are of this VM's first and second load: with an empty EXPHIL_NATIVE_CACHE the first one compiles the kernels.
Code.require_file("support.exs", __DIR__)
alias ExPhil.Native.{Policy, SelectiveScan}

{backend, rest} = BenchSupport.arguments()
policy = Enum.at(rest, 0, BenchSupport.policy())
runs = BenchSupport.integer(rest, 1, 2000)

load = fn ->
  BenchSupport.timed(fn ->
    {:ok, model} = Policy.load(policy, backend: backend)
    {:ok, session} = Policy.new_session(model)
    size = Policy.info!(model).d_input * 4
    {:ok, _} = Policy.step(session, :binary.copy(<<0>>, size))
    {model, session, size}
  end)
end

{first, _} = load.()
{second, {model, session, size}} = load.()
IO.puts("#{inspect(model)}")
IO.puts("load to first step: first #{first / 1000} ms, again in this VM #{second / 1000} ms")

obs = for seed <- 1..64, do: BenchSupport.floats(div(size, 4), seed, 1.0, 0.0)
obs = List.to_tuple(obs)
pick = fn run -> elem(obs, rem(run, 64)) end

BenchSupport.row("policy step, one agent", runs, fn run -> {:ok, _} = Policy.step(session, pick.(run)) end)

BenchSupport.row("snapshot, step, restore, step", div(runs, 4), fn run ->
  {:ok, snapshot} = Policy.snapshot(session)
  {:ok, _} = Policy.step(session, pick.(run))
  {:ok, _} = Policy.restore(session, snapshot)
  {:ok, _} = Policy.step(session, pick.(run + 1))
end)

# A game's rollback: seven frames were played on a guess, and are played again with the real inputs. The frame itself
# is not measured.
played = Policy.new_session!(model, history: 8)
seven = for k <- 0..7, do: for(f <- 0..6, into: <<>>, do: elem(obs, rem(f + k, 64)))
seven = List.to_tuple(seven)
play_seven = fn run -> Policy.resimulate!(played, 0, elem(seven, rem(run, 8))) end

BenchSupport.row("rollback 7", div(runs, 4), fn _ -> {:ok, _} = Policy.rollback(played, 7) end,
  prepare: play_seven
)

play_seven.(0)

BenchSupport.row("rollback 7 and resimulate 7", div(runs, 4), fn run ->
  {:ok, _} = Policy.resimulate(played, 7, elem(seven, rem(run, 8)))
end)

d_input = div(size, 4)
windows = for k <- 0..7, do: for(f <- 0..59, into: <<>>, do: elem(obs, rem(f + k, 64)))
windows = List.to_tuple(windows)

BenchSupport.row("policy window of 60 frames", div(runs, 10), fn run ->
  {:ok, _} = Policy.window(model, {:f32, {1, 60, d_input}, elem(windows, rem(run, 8))})
end)

for agents <- [16, 256] do
  sessions = for _ <- 1..agents, do: elem(Policy.new_session(model), 1)
  batches = for k <- 0..7, do: for(a <- 1..agents, into: <<>>, do: elem(obs, rem(a + k, 64)))
  batches = List.to_tuple(batches)

  BenchSupport.row("policy step, #{agents} agents in one call", div(runs, 10), fn run ->
    {:ok, _} = Policy.step_batch(sessions, elem(batches, rem(run, 8)))
  end)
end

{batch, seq, dim, state} = {32, 60, 512, 16}
a = {:f32, {dim, state}, BenchSupport.floats(dim * state, 1, 1.8, -1.0)}

inputs =
  for seed <- 1..4 do
    {{:f32, {batch, seq, dim}, BenchSupport.floats(batch * seq * dim, 10 * seed, 2.0, 0.0)},
     {:f32, {batch, seq, dim}, BenchSupport.floats(batch * seq * dim, 10 * seed + 1, 0.1, 0.06)},
     {:f32, {batch, seq, state}, BenchSupport.floats(batch * seq * state, 10 * seed + 2, 2.0, 0.0)},
     {:f32, {batch, seq, state}, BenchSupport.floats(batch * seq * state, 10 * seed + 3, 2.0, 0.0)}}
  end
  |> List.to_tuple()

chosen = Policy.info!(model).backend

BenchSupport.row("scan/5 32x60x512x16 f32, binaries to a binary", div(runs, 4), fn run ->
  {x, dt, b, c} = elem(inputs, rem(run, 4))
  SelectiveScan.scan(x, dt, a, b, c, backend: chosen)
end)
