# Public calls while the address space of this VM may grow by no more than so many megabytes: each answers, or gives an
# error of kind :out_of_memory, and the VM goes on. Run in an OS process of its own by limits_test.exs:
#
#   elixir -pa EBIN limits.exs FOLDER CONTROLLER MEGABYTES...
#
# CONTROLLER is a policy's file of ExPhil, or "" where there is none: the calls of Policy are then left out.
# Prints "answer CALL: MEGABYTES ANSWER" for each.
alias ExPhil.Native.{AssociativeScan, Policy, Safetensors, SelectiveScan, SemiseparableLayer}
alias ExPhil.Native.TestSupport.Limits
alias ExPhil.Native.Tools.Reference

[folder, controller | steps] = System.argv()

random = fn shape ->
  {:f32, shape, Reference.random_binary!(:f32, shape |> Tuple.to_list() |> Enum.product(), 7, {0.001, 0.1})}
end

# A policy of 70 MB of weights with a state of 1 MB, and a layer.
{model, inner, state} = {1024, 2048, 128}
mixer = "backbone.layers.0.mixer."

policy = %{
  "input_proj.weight" => random.({model, 4}),
  "input_proj.bias" => random.({model}),
  "backbone.layers.0.norm.weight" => random.({model}),
  (mixer <> "in_proj.weight") => random.({2 * inner, model}),
  (mixer <> "conv1d.weight") => random.({inner, 1, 4}),
  (mixer <> "x_proj.weight") => random.({16 + 2 * state, inner}),
  (mixer <> "dt_proj.weight") => random.({inner, 16}),
  (mixer <> "dt_proj.bias") => random.({inner}),
  (mixer <> "A_log") => random.({inner, state}),
  (mixer <> "D") => random.({inner}),
  (mixer <> "out_proj.weight") => random.({model, inner}),
  "backbone.norm_f.weight" => random.({model}),
  "head.weight" => random.({4096, model}),
  "head.bias" => random.({4096})
}

layer = %{
  "complexity_gate.0.weight" => random.({8, 1024}),
  "complexity_gate.0.bias" => random.({8}),
  "complexity_gate.2.weight" => random.({512, 8}),
  "complexity_gate.2.bias" => random.({512}),
  "U_proj.weight" => random.({512, 1024}),
  "V_proj.weight" => random.({512, 1024}),
  "T_conv.weight" => random.({1024, 1, 3}),
  "output_proj.weight" => random.({1024, 512}),
  "output_proj.bias" => random.({1024})
}

policy_path = Path.join(folder, "policy.safetensors")
layer_path = Path.join(folder, "layer.safetensors")
:ok = Safetensors.write(policy_path, policy)
:ok = Safetensors.write(layer_path, layer)
loaded = Policy.load!(policy_path, backend: :host)
session = Policy.new_session!(loaded)
exported = Policy.export_state!(session)
resident = SemiseparableLayer.load!(layer_path, backend: :host)
{_, _, obs} = random.({4})
frames = random.({600, 4})
snapshot = Policy.snapshot!(session)
windowed = Policy.new_session!(loaded, window: 60)
x = random.({4, 512, 512})
one = random.({4, 512})
{a, b} = {random.({512, 16}), random.({4, 512, 16})}
on_host = [backend: :host]
states = {:f32, {4, 512, 512, 16}, elem(random.({4, 512 * 512 * 16}), 2)}

calls = [
  {"Safetensors.read", fn -> Safetensors.read(policy_path) end},
  {"Policy.load", fn -> Policy.load(policy_path, on_host) end},
  {"Policy.new_session", fn -> Policy.new_session(loaded) end},
  {"Policy.step", fn -> Policy.step(session, obs) end},
  {"Policy.step_batch", fn -> Policy.step_batch([session], obs) end},
  {"Policy.prefill", fn -> Policy.prefill(session, frames) end},
  {"Policy.window", fn -> Policy.window(loaded, {:f32, {10, 60, 4}, elem(frames, 2)}) end},
  {"Policy.snapshot", fn -> Enum.map(1..8, fn _ -> Policy.snapshot!(session) end) end},
  {"Policy.restore", fn -> Policy.restore(session, snapshot) end},
  {"Policy.new_session, warm", fn -> Policy.new_session(loaded, warm_start: frames) end},
  {"Policy.step, window", fn -> Policy.step(windowed, obs) end},
  {"Policy.info", fn -> Policy.info!(loaded) end},
  {"Policy.export_state", fn -> Policy.export_state(session) end},
  {"Policy.import_state", fn -> Policy.import_state(session, exported) end},
  {"SemiseparableLayer.load", fn -> SemiseparableLayer.load(layer_path, on_host) end},
  {"SemiseparableLayer.forward", fn -> SemiseparableLayer.forward(resident, random.({4, 512, 1024})) end},
  {"SemiseparableLayer.forward_bidirectional",
   fn -> SemiseparableLayer.forward_bidirectional(resident, random.({4, 512, 1024})) end},
  {"SemiseparableLayer.grad",
   fn -> SemiseparableLayer.grad(resident, random.({1, 64, 1024}), random.({1, 64, 1024})) end},
  {"SelectiveScan.step",
   fn ->
     SelectiveScan.step(random.({4, 512, 16}), one, one, a, random.({4, 16}), random.({4, 16}), on_host)
   end},
  {"SelectiveScan.bidirectional", fn -> SelectiveScan.bidirectional(x, x, a, b, b, on_host) end},
  {"SelectiveScan.backward", fn -> SelectiveScan.backward(x, x, states, x, a, b, b, on_host) end},
  {"SelectiveScan.scan", fn -> SelectiveScan.scan(x, x, a, b, b, on_host) end},
  {"SelectiveScan.scan_with_states", fn -> SelectiveScan.scan_with_states(x, x, a, b, b, on_host) end},
  {"SelectiveScan.grad", fn -> SelectiveScan.grad(x, x, x, a, b, b, on_host) end},
  {"AssociativeScan.cumsum", fn -> AssociativeScan.cumsum(x, [axis: 1] ++ on_host) end},
  {"AssociativeScan.cumprod", fn -> AssociativeScan.cumprod(x, [axis: 1] ++ on_host) end},
  {"AssociativeScan.cummax", fn -> AssociativeScan.cummax(x, [axis: 1] ++ on_host) end},
  {"AssociativeScan.cummin", fn -> AssociativeScan.cummin(x, [axis: 1] ++ on_host) end},
  {"AssociativeScan.linear_recurrence", fn -> AssociativeScan.linear_recurrence(x, x, on_host) end},
  {"AssociativeScan.bidirectional", fn -> AssociativeScan.bidirectional(x, on_host) end},
  {"AssociativeScan.grad", fn -> AssociativeScan.grad(:cumprod, x, x, on_host) end},
  {"random_binary", fn -> Reference.random_binary!(:f32, 1_000_000_000_000, 1, {0.0, 1.0}) end}
]

policy_calls =
  if controller == "" do
    []
  else
    policy = Policy.load!(controller, on_host)
    agents = for seed <- 1..2, do: Policy.new_session!(policy, seed: seed)
    frame = fn count -> elem(random.({count * Policy.info!(policy).d_input}), 2) end

    [
      {"Policy.load", fn -> Policy.load(controller, on_host) end},
      {"Policy.new_session", fn -> Policy.new_session(policy) end},
      {"Policy.act", fn -> Policy.act(hd(agents), frame.(1)) end},
      {"Policy.act_batch", fn -> Policy.act_batch(agents, frame.(2)) end},
      {"Policy.step", fn -> Policy.step(hd(agents), frame.(1)) end},
      {"Policy.sample", fn -> Policy.sample(policy, elem(random.({Policy.info!(policy).d_output}), 2)) end}
    ]
  end

calls = calls ++ policy_calls

for megabytes <- steps, {name, call} <- calls do
  :erlang.garbage_collect()
  IO.puts("begin #{name}: #{megabytes}")
  IO.puts("answer #{name}: #{megabytes} #{Limits.limited(String.to_integer(megabytes), call)}")
end

# The same bits as before, after all of it.
{:ok, _} = Policy.import_state(session, exported)
^exported = Policy.export_state!(session)
IO.puts("done")
