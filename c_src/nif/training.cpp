// Training: the weights of a policy, its outputs for sequences, and their gradient, computed where the model
// is.
#include <algorithm>
#include <memory>

#include "core/policy/gradient.hpp"
#include "nif/functions.hpp"
#include "nif/sequences.hpp"
#include "nif/training.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;
using core::Shape;

void require_tensor(const core::TensorView& view, core::Dtype dtype, const Shape& shape,
                    const char* argument) {
  if (view.dtype != dtype || view.shape != shape) {
    fail(ErrorKind::invalid_argument, argument, argument, " must be ", core::dtype_name(dtype), " of shape ",
         shape.to_string(), ", got ", core::dtype_name(view.dtype), " of shape ", view.shape.to_string());
  }
}

bool is_double(const core::TensorView& view, const char* argument) {
  if (view.dtype != core::Dtype::f32 && view.dtype != core::Dtype::f64) {
    fail(ErrorKind::invalid_argument, argument, argument, " must be f32 or f64, got ",
         core::dtype_name(view.dtype));
  }
  return view.dtype == core::Dtype::f64;
}

Term policy_weights(Call& call, PolicyHandle& handle) {
  const std::shared_ptr<LoadedPolicy> found = handle.found();
  const core::PolicyWeights& weights = found->trainable();
  if (found->training == nullptr) return encode_values(call, *found->backend, weights, weights.values);
  core::PolicyValues<float> values = core::zeros_of<float>(weights.network());
  found->training->read(&values, nullptr, nullptr);
  return encode_values(call, *found->backend, weights, values);
}

Term policy_forward(Call& call, PolicyHandle& handle, core::TensorView frames,
                    std::optional<StateTensors> state, bool returns_state) {
  const std::shared_ptr<LoadedPolicy> loaded = handle.found();
  const core::PolicyWeights& weights = loaded->trainable();
  const core::PolicyConfig& c = weights.config;
  core::PolicySequences s = sequences_of(c, frames, 0);
  const std::int64_t floats = core::checked_multiply(s.batch, c.state_floats(), "frames");
  const std::vector<float> initial = states_of(c, s.batch, state);
  if (state) s.states = initial.data();
  F32Result outs(call, *loaded->backend, {s.batch, s.seq, c.d_output}, "frames");
  // Of many short sequences the states are far more memory than all else.
  std::vector<float> final(returns_state ? static_cast<std::size_t>(floats) : 0);
  if (s.seq > 0) {
    loaded->grad(s, nullptr, {nullptr, nullptr, outs.floats(), returns_state ? final.data() : nullptr});
  } else if (returns_state) {  // as they were
    final = state ? initial : first_states(c, s.batch);
  }
  return enif_make_tuple2(
      call.env(), outs.tensor(call),
      returns_state ? encode_states(call, *loaded->backend, c, s.batch, final) : encode_atom(call, "nil"));
}

Term policy_grad(Call& call, PolicyHandle& handle, core::TensorView frames, core::TensorView d_outs,
                 std::optional<StateTensors> state, bool by_frames, bool by_state) {
  const std::shared_ptr<LoadedPolicy> loaded = handle.found();
  const core::PolicyWeights& weights = loaded->trainable();
  core::PolicySequences s = sequences_of(weights.config, frames, 1);
  const std::vector<float> initial = states_of(weights.config, s.batch, state);
  if (state) s.states = initial.data();
  require_tensor(d_outs, core::Dtype::f32, {s.batch, s.seq, weights.config.d_output}, "d_outs");
  auto gradient = core::zeros_of<float>(weights.network());
  std::optional<F32Result> d_frames;
  if (by_frames) d_frames.emplace(call, *loaded->backend, frames.shape, "frames");
  core::PolicyGradOutputs outputs;
  outputs.weights = &gradient;
  if (d_frames) outputs.frames = d_frames->floats();
  std::vector<float> d_states;
  if (by_state) {
    const std::int64_t floats = core::checked_multiply(s.batch, weights.config.state_floats(), "frames");
    d_states.resize(static_cast<std::size_t>(floats));
    outputs.d_states = d_states.data();
  }
  loaded->grad(s, static_cast<const float*>(d_outs.data), outputs);
  return enif_make_tuple3(call.env(), encode_values(call, *loaded->backend, weights, gradient),
                          d_frames ? d_frames->tensor(call) : encode_atom(call, "nil"),
                          by_state ? encode_states(call, *loaded->backend, weights.config, s.batch, d_states)
                                   : encode_atom(call, "nil"));
}

}  // namespace exphil::nif
