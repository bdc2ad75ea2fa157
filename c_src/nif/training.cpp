// Training: the gradient of a policy, its weights and the optimiser's step. A gradient is computed where the
// model is; the optimiser runs on the CPU.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "core/policy/gradient.hpp"
#include "core/training/adamw.hpp"
#include "nif/frames.hpp"
#include "nif/functions.hpp"

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

core::PolicySequences sequences_of(const core::PolicyConfig& config, const core::TensorView& frames) {
  core::PolicySequences s;
  const Shape& shape = frames.shape;
  if (frames.dtype != core::Dtype::f32 || shape.rank() != 3 || shape[2] != config.d_input || shape[0] < 1 ||
      shape[1] < 1) {
    fail(ErrorKind::invalid_argument, "frames", "frames must be f32 of the shape {batch, seq, ",
         config.d_input, "} with at least one sequence of one frame, got ", core::dtype_name(frames.dtype),
         " of shape ", shape.to_string());
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
  core::PolicySequences s = sequences_of(c, frames);
  const std::vector<float> initial = states_of(c, s.batch, state);
  if (state) s.states = initial.data();
  F32Result outs(call, *loaded->backend, {s.batch, s.seq, c.d_output}, "frames");
  std::vector<float> final(
      static_cast<std::size_t>(core::checked_multiply(s.batch, c.state_floats(), "frames")));
  loaded->policy->grad(loaded->weights, s, nullptr, {nullptr, nullptr, outs.floats(), final.data()});
  return enif_make_tuple2(call.env(), outs.tensor(call),
                          encode_states(call, *loaded->backend, c, s.batch, final));
}

Term policy_grad(Call& call, PolicyHandle& handle, core::TensorView frames, core::TensorView d_outs,
                 std::optional<StateTensors> state, bool by_frames) {
  const std::shared_ptr<LoadedPolicy> loaded = handle.loaded();
  const core::PolicyWeights& weights = loaded->trainable();
  core::PolicySequences s = sequences_of(weights.config, frames);
  const std::vector<float> initial = states_of(weights.config, s.batch, state);
  if (state) s.states = initial.data();
  require_tensor(d_outs, core::Dtype::f32, {s.batch, s.seq, weights.config.d_output}, "d_outs");
  auto gradient = core::zeros_of<float>(weights.network());
  std::optional<F32Result> d_frames;
  if (by_frames) d_frames.emplace(call, *loaded->backend, frames.shape, "frames");
  loaded->policy->grad(loaded->weights, s, static_cast<const float*>(d_outs.data),
                       {&gradient, d_frames ? d_frames->floats() : nullptr, nullptr, nullptr});
  return enif_make_tuple2(call.env(), encode_values(call, *loaded->backend, weights, gradient),
                          d_frames ? d_frames->tensor(call) : encode_atom(call, "nil"));
}

namespace {

double squares_of(const core::TensorView& view) {
  const auto count = static_cast<std::int64_t>(view.bytes / core::dtype_size(view.dtype));
  return view.dtype == core::Dtype::f64 ? core::sum_of_squares(static_cast<const double*>(view.data), count)
                                        : core::sum_of_squares(static_cast<const float*>(view.data), count);
}

bool is_finite(const core::TensorView& view) {
  const auto count = static_cast<std::int64_t>(view.bytes / core::dtype_size(view.dtype));
  return view.dtype == core::Dtype::f64 ? core::all_finite(static_cast<const double*>(view.data), count)
                                        : core::all_finite(static_cast<const float*>(view.data), count);
}

// Before the step.
void require_finite(const core::TensorView& view, const char* argument, const std::string& name) {
  if (!is_finite(view)) {
    fail(ErrorKind::invalid_argument, argument, argument, " must be finite: tensor ", core::quote(name),
         " is not");
  }
}

// Of a step whose weights, means and gradients are finite. What is too large for the type is the square of a
// gradient, or else the way that the learning rate gives.
void require_finite_step(const core::AdamW& options, const core::TensorView& weight, NewBinary& next_weight,
                         NewBinary& next_v, const std::string& name) {
  const auto finite = [&](NewBinary& binary) {
    return is_finite({weight.dtype, weight.shape, binary.data(), weight.bytes});
  };
  const char* const type = core::dtype_name(weight.dtype);
  if (!finite(next_v)) {
    fail(ErrorKind::invalid_argument, "gradients", "gradients must have squares that ", type,
         " holds: that of tensor ", core::quote(name), " has not");
  }
  if (!finite(next_weight)) {
    fail(ErrorKind::invalid_argument, ":learning_rate", ":learning_rate is too large: a step with ",
         options.learning_rate, " leaves ", type, " in tensor ", core::quote(name));
  }
}

template <class T>
void run_step(const core::AdamW& options, const AdamWInput& input, NewBinary& weight, NewBinary& m,
              NewBinary& v) {
  const auto from = [](const core::TensorView& view) { return static_cast<const T*>(view.data); };
  const auto to = [](NewBinary& binary) { return reinterpret_cast<T*>(binary.data()); };
  const auto& [name, w, gradient, old_m, old_v, decays] = input;
  core::adamw_step<T>(options, {from(w), from(gradient), from(old_m), from(old_v), to(weight), to(m), to(v)},
                      static_cast<std::int64_t>(w.bytes / sizeof(T)));
}

}  // namespace

Term adamw(Call& call, std::vector<AdamWInput> tensors, AdamWOptions given) {
  core::AdamW options;
  double decay = 0;
  std::optional<double> clip;
  std::tie(options.learning_rate, options.beta1, options.beta2, options.epsilon, decay, clip, options.step) =
      given;
  double squares = 0;
  for (const AdamWInput& input : tensors) {
    const auto& [name, weight, gradient, m, v, decays] = input;
    is_double(weight, name.c_str());
    for (const core::TensorView* other : {&gradient, &m, &v}) {
      require_tensor(*other, weight.dtype, weight.shape, name.c_str());
    }
    require_finite(weight, "weights", name);
    require_finite(m, "optimiser", name);
    require_finite(v, "optimiser", name);
    squares += squares_of(gradient);
  }
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm)) {
    fail(ErrorKind::invalid_argument, "gradients", "gradients must be finite: their norm is ", norm);
  }
  if (clip && norm > *clip) options.gradient_scale = *clip / norm;
  std::vector<Term> terms;
  for (const AdamWInput& input : tensors) {
    const auto& [name, w, gradient, old_m, old_v, decays] = input;
    NewBinary weight(w.bytes), m(w.bytes), v(w.bytes);
    options.weight_decay = decays ? decay : 0;
    w.dtype == core::Dtype::f64 ? run_step<double>(options, input, weight, m, v)
                                : run_step<float>(options, input, weight, m, v);
    require_finite_step(options, w, weight, v, name);
    const auto tensor = [&, &view = w](NewBinary& binary) {
      return encode_tensor(call, view.dtype, view.shape, binary.term(call));
    };
    terms.push_back(enif_make_tuple4(call.env(), encode(call, name), tensor(weight), tensor(m), tensor(v)));
  }
  return enif_make_tuple2(call.env(), encode_list(call, terms), enif_make_double(call.env(), norm));
}

}  // namespace exphil::nif
