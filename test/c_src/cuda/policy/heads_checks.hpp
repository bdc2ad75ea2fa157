// Checks of policies with a matrix state for each head on a GPU, or on an emulated one: every call against
// the reference and bit by bit, and against what was recorded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/forms_on_device.hpp"
#include "cuda/policy/gradient_on_device.hpp"
#include "support/case_sample.hpp"
#include "support/catch.hpp"
#include "support/mamba3_policy.hpp"
#include "support/numbers.hpp"
#include "support/shared_data.hpp"

namespace exphil::test {

using Weights = std::shared_ptr<const core::PolicyWeights>;

// The recorded policies of Mamba-3, or those of Mamba-2.
inline std::vector<std::string> recorded_of(bool mamba3) {
  std::vector<std::string> names;
  for (const RecordedMixer& set : recorded_mixers()) {
    if (set.is_mamba3() == mamba3) names.push_back(set.name);
  }
  return names;
}

// Frames, the state after the last one, and windows. states: how far the states may be off.
inline void check_recorded_heads(const std::string& name, double states = 1e-5) {
  INFO(name);
  const Weights weights = load_mixer(name);
  const core::PolicyConfig& c = weights->config;
  const auto policy = load_on_device(weights, 16);
  const auto outputs = static_cast<std::size_t>(c.d_output);
  const std::string golden = mixer_path(name, "golden.safetensors");
  const std::vector<float> obs = read_f32(golden, "obs");
  const auto expected = read_f64(golden, "logits");
  const auto state = policy->new_state();
  core::State* const one = state.get();
  std::vector<float> out(expected.size());
  for (std::size_t t = 0; t < out.size() / outputs; ++t) {
    policy->step(&one, 1, obs.data() + t * static_cast<std::size_t>(c.d_input), out.data() + t * outputs);
  }
  CHECK(relative_error(out, expected) <= 1e-5);
  std::vector<float> values(static_cast<std::size_t>(c.state_floats()));
  policy->read_state(*state, values.data());
  CHECK(mixer_state_error(name, c, {values.begin(), values.end()}) <= states);
  const auto windows = read_f64(golden, "window_logits");
  const auto ends = read_s32(golden, "end_frame_index");
  std::vector<float> last(outputs);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    policy->window(obs.data() + (ends[i] - 19) * c.d_input, 1, 20, last.data());
    CHECK(relative_error(last.data(), windows.data() + i * outputs, outputs) <= 1e-5);
  }
}

inline void check_gradient(const Weights& weights, std::int64_t batch,
                           const std::vector<std::int64_t>& lengths, double tolerance = 2e-5) {
  const PolicyGrad grad = gradient_on_device(weights);
  for (const std::int64_t seq : lengths) {
    for (const bool with_state : {false, true}) {
      CAPTURE(seq, with_state);
      check_policy_grad(grad, *weights, policy_grad_case(weights->config, batch, seq, with_state), tolerance);
    }
  }
}

inline void check_gradient_bits(const Weights& weights, std::int64_t batch, std::int64_t seq) {
  const PolicyGrad grad = gradient_on_device(weights);
  check_policy_grad_bits(grad, *weights, policy_grad_case(weights->config, batch, seq, true));
  check_policy_grad_nan(grad, *weights, seq);
}

inline void check_recorded_gradient(const std::string& name) {
  INFO(name);
  const Weights weights = load_mixer(name);
  const std::string file = mixer_path(name, "grad.safetensors");
  const std::vector<float> obs = read_f32(file, "obs"), g = read_f32(file, "g");
  core::PolicyValues<float> gradient = core::zeros_of<float>(weights->network());
  std::vector<float> frames(obs.size());
  core::PolicyGradOutputs outputs;
  outputs.weights = &gradient, outputs.frames = frames.data();
  gradient_on_device(weights)({3, 40, obs.data()}, g.data(), outputs);
  CHECK(relative_error(frames, read_f64(file, "grad.obs")) <= 1e-4);
  for (const core::PolicyParameter& parameter : weights->parameters) {
    INFO(parameter.name);
    std::vector<float> values(parameter.count());
    core::copy_parameter(parameter, gradient, values.data());
    const std::string recorded = "grad." + parameter.name;
    if (values.size() > 1024) {  // recorded as f32
      CHECK(relative_error(values, read_f32(file, recorded)) <= 1e-4);
    } else {
      CHECK(relative_error(values, read_f64(file, recorded)) <= 1e-4);
    }
  }
}

}  // namespace exphil::test
