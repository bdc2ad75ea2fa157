# Latency of a policy with a controller for an Elixir caller: one frame in, one action out.
#
#   mix run bench/policy_act.exs [cuda|host] [POLICY] [RUNS]
#
# POLICY defaults to ExPhil's shared one (EXPHIL_SHARED, else ../shared). Observations change from call to call. The
# load times run from Policy.load to the first action: of this VM's first load, and of the second. With an empty
# EXPHIL_NATIVE_CACHE the first one compiles the kernels; run twice with the same folder for a warm cache.
Code.require_file("support.exs", __DIR__)
alias ExPhil.Native.{Policy, Safetensors}

{backend, rest} = BenchSupport.arguments()
path = Enum.at(rest, 0, BenchSupport.shared("exphil/exphil_policy/policy.bin"))
runs = BenchSupport.integer(rest, 1, 2000)

{:f32, {count, width}, bytes} = Safetensors.read!(BenchSupport.shared("exphil/frames600.safetensors"))["obs"]

frames = List.to_tuple(for <<frame::binary-size(width * 4) <- bytes>>, do: frame)

load = fn ->
  BenchSupport.timed(fn ->
    policy = Policy.load!(path, backend: backend)
    Policy.act!(Policy.new_session!(policy), elem(frames, 0))
    policy
  end)
end

{first, _} = load.()
{second, policy} = load.()
info = Policy.info!(policy)
IO.puts("#{info.backend}, #{path}, window of #{info.window} frames, #{count} different observations")
IO.puts("load to first act: #{round(first / 1000)} ms, again #{round(second / 1000)} ms")

# The window of 60 frames is full when the measurement begins.
measure = fn name, call -> BenchSupport.row(name, runs, call, warm: 70) end

# What a window session would cost if nothing were kept between its frames.
windows =
  for run <- 0..7 do
    {:f32, {1, info.window, width}, binary_part(bytes, run * width * 4, info.window * width * 4)}
  end
  |> List.to_tuple()

measure.("window, stateless", fn run -> Policy.window!(policy, elem(windows, rem(run, 8))) end)

for window <- [nil, :none] do
  session = Policy.new_session!(policy, window: window)

  measure.("act, window: #{inspect(window)}", fn run ->
    Policy.act!(session, elem(frames, rem(run, count)))
  end)
end

session = Policy.new_session!(policy, window: :none)
measure.("logits, window: :none", fn run -> Policy.step!(session, elem(frames, rem(run, count))) end)
