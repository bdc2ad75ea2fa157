// The gradient of the AR-SSM layer against finite differences of its oracle, for every weight.
#include "core/semiseparable/gradient.hpp"

#include <cmath>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/semiseparable_case.hpp"

namespace exphil::test {
namespace {

// <dy, y> + d_penalty mean(gates)
double loss(const core::SemiseparableWeights& weights, const core::SemiseparableGradInput& input) {
  const core::SemiseparableReference out = core::semiseparable_reference(weights, input.forward);
  double sum = 0, gates = 0;
  for (std::size_t i = 0; i < out.y.size(); ++i) sum += out.y[i] * double{input.dy[i]};
  for (const double gate : out.gates) gates += gate;
  return sum + input.d_penalty * gates / static_cast<double>(out.gates.size());
}

TEST_CASE("the AR-SSM layer's gradient agrees with finite differences", "[semiseparable_grad]") {
  const SemiseparableTensors tensors(5, 3, 4);
  core::SemiseparableWeights w = *core::load_semiseparable(tensors.views(), true);
  Random random(3);
  std::vector<float> x = random.vector(2 * 6 * 5, -1.0f, 1.0f), dy = random.vector(x.size(), -1.0f, 1.0f);
  core::SemiseparableGradInput input;
  input.forward = {x.data(), 2, 6, GENERATE(false, true)};
  input.dy = dy.data();
  input.d_penalty = GENERATE(0.0, 7.0);
  const core::SemiseparableGrad gradient = core::semiseparable_grad(w, input);
  const auto check = [&](const char* name, std::vector<float>& values, const std::vector<double>& of) {
    INFO(name);
    REQUIRE(of.size() == values.size());
    for (std::size_t i = 0; i < of.size(); ++i) {
      const float kept = values[i], step = 0x1p-12f;
      values[i] = kept + step;
      const double above = loss(w, input), at_above = values[i];
      values[i] = kept - step;
      const double below = loss(w, input), at_below = values[i];
      values[i] = kept;
      CHECK(std::abs((above - below) / (at_above - at_below) - of[i]) < 1e-5 * (1 + std::abs(of[i])));
    }
  };
  check("x", x, gradient.x);
  check("gate_in", w.gate_in, gradient.gate_in);
  check("gate_in_bias", w.gate_in_bias, gradient.gate_in_bias);
  check("gate_out", w.gate_out, gradient.gate_out);
  check("gate_out_bias", w.gate_out_bias, gradient.gate_out_bias);
  check("u", w.u, gradient.u);
  check("v", w.v, gradient.v);
  check("conv", w.conv, gradient.conv);
  check("output", w.output, gradient.output);
  check("output_bias", w.output_bias, gradient.output_bias);
}

TEST_CASE("the AR-SSM layer's gradient of no positions is zero; dy is checked", "[semiseparable_grad]") {
  const SemiseparableTensors tensors(5, 3, 4);
  const auto weights = core::load_semiseparable(tensors.views(), true);
  core::SemiseparableGradInput none;
  none.forward.batch = 2;
  const core::SemiseparableGrad gradient = core::semiseparable_grad(*weights, none);
  CHECK(gradient.x.empty());
  CHECK(gradient.output == std::vector<double>(15));

  const float values[30] = {};
  const core::TensorView x{core::Dtype::f32, {1, 2, 5}, values, 40};
  core::TensorView dy{core::Dtype::f32, {2, 1, 5}, values, 40};
  const auto refused = [&] {
    return error_of([&] { core::validate_semiseparable_grad(weights->config, x, dy, 0.0, false); });
  };
  CHECK(refused().argument == "dy");
  dy = {core::Dtype::f16, {1, 2, 5}, values, 20};
  CHECK(refused().argument == "dy");
  dy = x;
  CHECK_FALSE(refused().thrown);
}

}  // namespace
}  // namespace exphil::test
