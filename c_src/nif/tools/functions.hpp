// The NIFs of the tools: plain functions, named as in ExPhil.Native.Tools.Reference. table.cpp lists them.
// They compute what `mix exphil.bench` needs and Elixir cannot compute in reasonable time: random inputs,
// timed scalar references, and copy rates. The product does not call them.
#pragma once

#include <optional>
#include <string>
#include <tuple>

#include "nif/functions.hpp"
#include "nif/scan_request.hpp"

namespace exphil::nif {

// Uniform in [min, max): an f32, f16 or bf16 binary determined by the seed.
Term random_binary(Call& call, Atom type, std::int64_t count, std::int64_t seed,
                   std::tuple<double, double> range);

// {y, nanoseconds}, y in the type of x.
Term reference_scan(Call& call, core::TensorView x, core::TensorView dt, core::TensorView a,
                    core::TensorView b, core::TensorView c, MaybeTensor initial_state, ScanRequest request);

// {y, nanoseconds}; inputs of any type are widened first, and y is f32.
Term reference_associative(Call& call, Atom op, MaybeTensor a, core::TensorView x, std::int64_t axis);

// One agent's frames through the scalar policy in double. frames: f32 {count, d_input}; {out, nanoseconds}
// with out f32 {count, d_output}.
Term reference_policy(Call& call, std::string path, core::TensorView frames);

// policy_reference.cpp: policy_forward and policy_grad by the scalar reference, with the dimensions of the
// model and these weights, f64, by name. d_outs f64, or nil for the forward pass alone. {outs, [{name,
// tensor}]}, all f64.
Term reference_policy_grad(Call& call, PolicyHandle& policy, NamedTensors weights, core::TensorView frames,
                           MaybeTensor d_outs);

// %{to_device, from_device, memory} in bytes a second: core/copy_rates.hpp.
Term copy_rates(Call& call, BackendChoice backend, std::int64_t device);

// %{calls, long_calls, longest_processor_time, longest_time} since the last call: nif/held.hpp. limit: the
// nanoseconds of a long call.
Term held_calls(Call& call, std::int64_t limit);

// test_controls.cpp. From now on the library takes the machine for one where so many threads run or want to;
// nil: what the system says. For tests of what only happens where cores are idle.
Term runnable_threads(Call& call, std::optional<std::int64_t> count);

// The bytes that the process has from malloc and has not freed, once everything dropped so far is freed.
Term allocated_bytes(Call& call);

}  // namespace exphil::nif
