# The gradient of the shared policy over 32 windows of 60 frames, beside its forward pass, in turns.
#
#     mix run bench/policy_grad.exs [host|cuda]
#
# Reads ../shared/melee, or where EXPHIL_SHARED points.
alias ExPhil.Native.{Policy, Safetensors}

folder = Path.join(System.get_env("EXPHIL_SHARED") || "../shared", "melee")
backend = if System.argv() == ["cuda"], do: :cuda, else: :host
model = Policy.load!(Path.join(folder, "policy.safetensors"), backend: backend)
{:f32, _, obs} = Safetensors.read!(Path.join(folder, "match.safetensors"))["obs"]
frames = {:f32, {32, 60, 287}, binary_part(obs, 0, 4 * 32 * 60 * 287)}
d_outs = {:f32, {32, 60, 64}, :binary.copy(<<0.01::float-32-little>>, 32 * 60 * 64)}
weights = Policy.weights!(model)

calls = [
  window: fn -> Policy.window!(model, frames) end,
  forward: fn -> Policy.forward!(model, frames) end,
  grad: fn -> Policy.grad!(model, frames, d_outs) end,
  update: fn -> Policy.update!(model, weights) end
]

time = fn call ->
  {microseconds, _} = :timer.tc(call)
  microseconds / 1000
end

for {_, call} <- calls, do: call.()
times = for _ <- 1..21, {name, call} <- calls, do: {name, time.(call)}
sorted = for {name, _} <- calls, do: {name, times |> Keyword.get_values(name) |> Enum.sort()}
window = Enum.at(sorted[:window], 10)

for {name, list} <- sorted do
  median = Enum.at(list, 10)

  IO.puts(
    "#{name}: median #{Float.round(median, 1)} ms, best #{Float.round(hd(list), 1)}, worst #{Float.round(List.last(list), 1)}; " <>
      "#{Float.round(median / window, 2)} times window"
  )
end
