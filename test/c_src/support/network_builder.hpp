// Networks that no trunk makes, phase by phase, with random weights: for tests of executors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/policy/config.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

class NetworkBuilder {
 public:
  NetworkBuilder(std::int64_t d_input, std::int64_t d_hidden, std::int64_t d_output) {
    n.frame = vector("frame", d_input), n.hidden = vector("hidden", d_hidden);
    n.outs = vector("outs", d_output);
  }

  core::VectorId vector(const char* name, std::int64_t size) {
    n.vectors.push_back({name, size});
    return static_cast<core::VectorId>(n.vectors.size()) - 1;
  }
  core::WeightId weight(std::int64_t rows, std::int64_t columns) {
    n.weights.push_back({"weight " + std::to_string(n.weights.size()), rows, columns});
    values_.push_back(random_.vector(static_cast<std::size_t>(rows * columns), -0.5f, 0.5f));
    return static_cast<core::WeightId>(n.weights.size()) - 1;
  }
  core::StateId state(const char* name, std::int64_t layer, std::int64_t rows, std::int64_t columns) {
    n.states.push_back({name, layer, rows, columns, {}});
    return static_cast<core::StateId>(n.states.size()) - 1;
  }
  core::Span all(core::VectorId id) const { return n.all_of(id); }

  core::Norm norm(const core::Span& in, const core::Span& out) {
    core::Norm norm{in, out};
    norm.weight = weight(1, in.size), norm.epsilon = 1e-5f;
    return norm;
  }
  core::Product product(const core::Span& in, const core::Span& out, bool bias) {
    core::Product p{in, out};
    p.weight = weight(out.size, in.size);
    if (bias) p.bias = weight(1, out.size);
    return p;
  }
  // The last phase of a layer.
  core::Product residual(const core::Span& in) {
    core::Product p = product(in, all(n.hidden), true);
    p.adds = true;
    return p;
  }
  core::Convolution convolution(const core::Span& in, const core::Span& out, std::int64_t taps,
                                std::int64_t layer) {
    core::Convolution p{in, out};
    p.weight = weight(in.size, taps), p.bias = weight(1, in.size);
    p.taps = taps, p.state = state("conv", layer, in.size, taps - 1);
    return p;
  }
  // Gives a scan whose vectors are set its weights and its state.
  core::SelectiveScan scan(core::SelectiveScan p, std::int64_t layer) {
    p.a = weight(p.x.size, p.b.size), p.dt_bias = weight(1, p.x.size);
    const core::WeightId log = weight(p.x.size, p.b.size);
    n.weights[static_cast<std::size_t>(p.a)].negative_exp_of = log;
    p.lowest = 0.05f, p.highest = 2.0f;
    p.state = state("ssm", layer, p.x.size, p.b.size);
    return p;
  }

  std::shared_ptr<const core::PolicyWeights> weights() const {
    core::check(n);
    auto made = std::make_shared<core::PolicyWeights>();
    made->config.d_input = n.size_of(n.frame), made->config.d_output = n.size_of(n.outs);
    made->config.network = n;
    made->values = values_;
    core::derive(n, &made->values);
    return made;
  }

  core::Network n;

 private:
  Random random_{11};
  core::PolicyValues<float> values_;
};

}  // namespace exphil::test
