// Training: the weights of a policy, its outputs for sequences, and their gradient, computed where the model
// is.
#include <algorithm>
#include <memory>

#include "core/policy/gradient.hpp"
#include "nif/frames.hpp"
#include "nif/functions.hpp"
#include "nif/training.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;
using core::Shape;

namespace {

Term named_tensor(Call& call, const std::string& name, core::Dtype dtype, const Shape& shape, Term binary) {
  return enif_make_tuple2(call.env(), encode(call, name), encode_tensor(call, dtype, shape, binary));
}

// Uninitialised f32 of this shape, in the backend's memory for results.
class F32Result {
 public:
  F32Result(Call& call, core::Backend& backend, const Shape& shape, const char* argument)
      : shape_(shape),
        result_(call, backend,
                static_cast<std::size_t>(core::checked_multiply(shape.elements(argument), 4, argument))) {}
  float* floats() const { return result_.floats(); }
  Term tensor(Call& call) { return encode_tensor(call, core::Dtype::f32, shape_, result_.term()); }

 private:
  Shape shape_;
  Result result_;
};

// The values of the checkpoint's tensors, as [{name, tensor}].
Term encode_values(Call& call, core::Backend& backend, const core::PolicyWeights& weights,
                   const core::PolicyValues<float>& values) {
  std::vector<Term> terms;
  for (const core::PolicyParameter& parameter : weights.parameters) {
    Result result(call, backend, parameter.count() * sizeof(float));
    core::copy_parameter(parameter, values, result.floats());
    terms.push_back(named_tensor(call, parameter.name, core::Dtype::f32, parameter.shape, result.term()));
  }
  return encode_list(call, terms);
}

// least: the fewest frames of a sequence.
core::PolicySequences sequences_of(const core::PolicyConfig& config, const core::TensorView& frames,
                                   std::int64_t least) {
  core::PolicySequences s;
  const Shape& shape = frames.shape;
  if (frames.dtype != core::Dtype::f32 || shape.rank() != 3 || shape[2] != config.d_input || shape[0] < 1 ||
      shape[1] < least) {
    fail(ErrorKind::invalid_argument, "frames", "frames must be f32 of the shape {batch, seq, ",
         config.d_input, "} with at least one sequence", least > 0 ? " of one frame" : "", ", got ",
         core::dtype_name(frames.dtype), " of shape ", shape.to_string());
  }
  s.batch = shape[0], s.seq = shape[1];
  s.frames = static_cast<const float*>(frames.data);
  return s;
}

// The parts of a state that have one name, in all layers: a tensor {batch, layers, rows, columns} for the
// caller, and floats [at, at + layers rows columns) of each sequence for the policy.
struct NamedParts {
  std::string name;
  std::int64_t layers = 0, rows = 0, columns = 0, at = 0;
  std::int64_t size() const { return layers * rows * columns; }
  Shape shape(std::int64_t batch) const { return {batch, layers, rows, columns}; }
};

std::vector<NamedParts> named_parts(const core::Network& network) {
  std::vector<NamedParts> all;
  std::int64_t at = 0;
  for (const core::StatePart& part : network.states) {
    if (all.empty() || all.back().name != part.name)
      all.push_back({part.name, 0, part.rows, part.columns, at});
    ++all.back().layers;
    at += part.size();
  }
  return all;
}

// {batch, state_floats} of the caller's tensors, one for each name; empty where there are none.
std::vector<float> states_of(const core::PolicyConfig& config, std::int64_t batch,
                             const std::optional<StateTensors>& given) {
  std::vector<float> states;
  if (!given) return states;
  const std::vector<NamedParts> parts = named_parts(config.network);
  const std::int64_t floats = config.state_floats();
  states.resize(static_cast<std::size_t>(core::checked_multiply(batch, floats, ":initial_state")));
  for (const NamedParts& part : parts) {
    const auto found = std::find_if(given->begin(), given->end(), [&part](const auto& tensor) {
      return std::get<0>(tensor).name == part.name;
    });
    if (found == given->end() || given->size() != parts.size()) {
      fail(ErrorKind::invalid_argument, ":initial_state",
           ":initial_state must have a tensor for each part of a", " state, here ", parts.size(),
           ", and one of them is :", part.name);
    }
    const core::TensorView& view = std::get<1>(*found);
    require_tensor(view, core::Dtype::f32, part.shape(batch), ":initial_state");
    for (std::int64_t b = 0; b < batch; ++b) {
      std::copy_n(static_cast<const float*>(view.data) + b * part.size(), part.size(),
                  states.data() + b * floats + part.at);
    }
  }
  return states;
}

// What `batch` new agents begin with.
std::vector<float> first_states(const core::PolicyConfig& config, std::int64_t batch) {
  std::vector<float> first(static_cast<std::size_t>(config.state_floats()));
  auto at = first.begin();
  for (const core::StatePart& part : config.network.states) {
    std::copy(part.initial.begin(), part.initial.end(), at);
    at += part.size();
  }
  std::vector<float> states;
  for (std::int64_t b = 0; b < batch; ++b) states.insert(states.end(), first.begin(), first.end());
  return states;
}

// And back: [{name, tensor}].
Term encode_states(Call& call, core::Backend& backend, const core::PolicyConfig& config, std::int64_t batch,
                   const std::vector<float>& states) {
  std::vector<Term> terms;
  for (const NamedParts& part : named_parts(config.network)) {
    F32Result tensor(call, backend, part.shape(batch), "frames");
    for (std::int64_t b = 0; b < batch; ++b) {
      std::copy_n(states.data() + b * config.state_floats() + part.at, part.size(),
                  tensor.floats() + b * part.size());
    }
    terms.push_back(enif_make_tuple2(call.env(), encode_atom(call, part.name.c_str()), tensor.tensor(call)));
  }
  return encode_list(call, terms);
}

}  // namespace

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
  const std::shared_ptr<LoadedPolicy> loaded = handle.loaded();
  const core::PolicyWeights& weights = loaded->trainable();
  return encode_values(call, *loaded->backend, weights, weights.values);
}

Term policy_forward(Call& call, PolicyHandle& handle, core::TensorView frames,
                    std::optional<StateTensors> state) {
  const std::shared_ptr<LoadedPolicy> loaded = handle.loaded();
  const core::PolicyWeights& weights = loaded->trainable();
  const core::PolicyConfig& c = weights.config;
  core::PolicySequences s = sequences_of(c, frames, 0);
  const std::int64_t floats = core::checked_multiply(s.batch, c.state_floats(), "frames");
  const std::vector<float> initial = states_of(c, s.batch, state);
  if (state) s.states = initial.data();
  F32Result outs(call, *loaded->backend, {s.batch, s.seq, c.d_output}, "frames");
  if (s.seq == 0) {  // the states are as they were
    return enif_make_tuple2(
        call.env(), outs.tensor(call),
        encode_states(call, *loaded->backend, c, s.batch, state ? initial : first_states(c, s.batch)));
  }
  std::vector<float> final(static_cast<std::size_t>(floats));
  loaded->policy->grad(loaded->weights, s, nullptr, {nullptr, nullptr, outs.floats(), final.data()});
  return enif_make_tuple2(call.env(), outs.tensor(call),
                          encode_states(call, *loaded->backend, c, s.batch, final));
}

Term policy_grad(Call& call, PolicyHandle& handle, core::TensorView frames, core::TensorView d_outs,
                 std::optional<StateTensors> state, bool by_frames, bool by_state) {
  const std::shared_ptr<LoadedPolicy> loaded = handle.loaded();
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
  loaded->policy->grad(loaded->weights, s, static_cast<const float*>(d_outs.data), outputs);
  return enif_make_tuple3(call.env(), encode_values(call, *loaded->backend, weights, gradient),
                          d_frames ? d_frames->tensor(call) : encode_atom(call, "nil"),
                          by_state ? encode_states(call, *loaded->backend, weights.config, s.batch, d_states)
                                   : encode_atom(call, "nil"));
}

}  // namespace exphil::nif
