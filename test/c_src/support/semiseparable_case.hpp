// Random weights of an AR-SSM layer, and the check of a layer's forward pass against the double oracle. Used
// by the tests of core, host and cuda.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/semiseparable/reference.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

// Owns the bytes behind named f32 tensors.
class SemiseparableTensors {
 public:
  SemiseparableTensors(std::int64_t hidden, std::int64_t rank, std::int64_t inner, std::uint64_t seed = 1)
      : random_(seed) {
    add("complexity_gate.0.weight", {inner, hidden}, hidden);
    add("complexity_gate.0.bias", {inner}, 4);
    add("complexity_gate.2.weight", {rank, inner}, inner);
    add("complexity_gate.2.bias", {rank}, 1);
    add("U_proj.weight", {rank, hidden}, hidden);
    add("V_proj.weight", {rank, hidden}, hidden);
    add("T_conv.weight", {hidden, 1, 3}, 3);
    add("output_proj.weight", {hidden, rank}, rank);
    add("output_proj.bias", {hidden}, 4);
  }

  // Uniform in +-2 / sqrt(inputs), so that a product of `inputs` random numbers stays near 1.
  void add(const std::string& name, const core::Shape& shape, std::int64_t inputs) {
    const float limit = 2.0f / std::sqrt(static_cast<float>(inputs));
    std::vector<float>& values = values_[name];
    values = random_.vector(static_cast<std::size_t>(shape.elements(name)), -limit, limit);
    views_[name] = {core::Dtype::f32, shape, values.data(), values.size() * sizeof(float)};
  }
  void remove(const std::string& name) { views_.erase(name); }
  std::vector<float>& values(const std::string& name) { return values_[name]; }
  const std::map<std::string, core::TensorView>& views() const { return views_; }

 private:
  Random random_;
  std::map<std::string, std::vector<float>> values_;
  std::map<std::string, core::TensorView> views_;
};

// "" where y and the gates are within 1e-5 of the oracle (relative, by norms); else the errors.
inline std::string semiseparable_mismatch(core::SemiseparableLayer& policy,
                                          const core::SemiseparableWeights& weights, std::int64_t batch,
                                          std::int64_t seq, bool bidirectional) {
  const core::SemiseparableConfig& config = weights.config;
  const std::size_t positions = static_cast<std::size_t>(batch * seq);
  Random random(static_cast<std::uint64_t>(seq) + 7);
  const std::vector<float> x =
      random.vector(positions * static_cast<std::size_t>(config.hidden), -1.0f, 1.0f);
  const core::SemiseparableInput input{x.data(), batch, seq, bidirectional};
  const float poison = std::nanf("");
  std::vector<float> y(x.size() + 16, poison),
      gates(positions * static_cast<std::size_t>(config.rank) + 16, poison);
  policy.forward(input, {y.data(), gates.data()});
  for (std::size_t i = 0; i < 16; ++i) {
    if (!std::isnan(y[x.size() + i]) || !std::isnan(gates[gates.size() - 1 - i]))
      return "wrote behind a result";
  }
  const core::SemiseparableReference expected = core::semiseparable_reference(weights, input);
  const double y_error = relative_error(y.data(), expected.y.data(), expected.y.size());
  const double gate_error = relative_error(gates.data(), expected.gates.data(), expected.gates.size());
  if (y_error <= 1e-5 && gate_error <= 1e-5) return "";
  return core::message("hidden ", config.hidden, " rank ", config.rank, " seq ", seq, ": y ", y_error,
                       ", gates ", gate_error);
}

}  // namespace exphil::test
