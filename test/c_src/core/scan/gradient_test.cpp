// The gradient's reference against the float64 goldens and against finite differences of the scan's
// reference, and the checks of its inputs.
#include "core/scan/gradient.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/scan/gradient_reference.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/goldens.hpp"
#include "support/numbers.hpp"
#include "support/scan_grad_case.hpp"

namespace exphil {

using core::Direction;
using core::Dtype;
using formulas::Discretization;
using test::relative_error;
using test::ScanGradCase;
using test::ScanSpec;

namespace {

core::ScanGradProblem golden_problem(const test::Golden& golden) {
  core::ScanGradInputs inputs;
  inputs.scan = golden.inputs;
  inputs.dy = {Dtype::f32, golden.inputs.x.shape, golden.dy.data(), golden.dy.size() * sizeof(float)};
  return core::validate_scan_grad(inputs, golden.options);
}

// <dy, y> + Re <d_final_state, h_T>: the real function whose gradient is tested.
double loss(const core::ScanGradProblem& problem) {
  const test::ScanExpected out = test::expect(problem.scan);
  double sum = 0;
  for (std::size_t i = 0; i < out.y.size(); ++i) sum += out.y[i] * static_cast<const float*>(problem.dy)[i];
  for (std::size_t i = 0; i < out.final_state.size() && problem.d_final_state != nullptr; ++i) {
    sum += out.final_state[i] * problem.d_final_state[i];
  }
  return sum;
}

// The derivative of the loss by one float of an operand: central differences with steps h and h/2, the
// error term in h^2 removed.
double difference(const core::ScanGradProblem& problem, const void* operand, std::size_t index) {
  float& value = const_cast<float*>(static_cast<const float*>(operand))[index];
  const float kept = value;
  const auto central = [&](float step) {
    value = kept + step;
    const double above = loss(problem), at_above = value;
    value = kept - step;
    const double below = loss(problem), at_below = value;
    value = kept;
    return (above - below) / (at_above - at_below);
  };
  return (4 * central(0x1p-9f) - central(0x1p-8f)) / 3;
}

// dt' has two derivatives at the ends of dt_range: moves every dt whose dt' is within a step of an end.
void keep_from_bounds(const ScanGradCase& test) {
  const core::ScanCall call = test.problem().scan;
  const core::ScanShape& problem = call.shape;
  auto* dt = static_cast<float*>(call.operands[core::ScanOperand::dt]);
  const auto* bias = static_cast<const float*>(call.operands[core::ScanOperand::dt_bias]);
  for (std::int64_t i = 0; i < problem.y_elements(); ++i) {
    for (int tries = 0; tries < 100; ++tries) {
      const float sum = dt[i] + (bias == nullptr ? 0.0f : bias[i % problem.dim]);
      const float active = problem.options.dt_softplus ? std::log1p(std::exp(sum)) : sum;
      const float from_min = std::abs(active - problem.options.dt_min);
      const float from_max = std::abs(active - problem.options.dt_max);
      if (std::min(from_min, from_max) > 0.01f) break;
      dt[i] += 0.03f;
    }
  }
}

// Compares some elements of each gradient. Returns "" or the differences.
std::string compare_with_differences(const ScanGradCase& test, test::Random* random) {
  const core::ScanGradProblem problem = test.problem();
  const core::ScanInputs& in = test.inputs().scan;
  const std::map<std::string, const void*> operands = {
      {"x", in.x.data},
      {"dt", in.dt.data},
      {"a", in.a.data},
      {"b", in.b.data},
      {"c", in.c.data},
      {"d", in.d ? in.d->data : nullptr},
      {"z", in.z ? in.z->data : nullptr},
      {"dt_bias", in.dt_bias ? in.dt_bias->data : nullptr},
      {"initial_state", in.initial_state ? in.initial_state->data : nullptr}};
  std::string wrong;
  for (const auto& [name, gradient] : test::named(core::scan_grad_reference(problem))) {
    if (operands.at(name) == nullptr) continue;
    double size = 0;
    for (const double value : gradient) size = std::max(size, std::abs(value));
    for (int i = 0; i < 4 && !gradient.empty(); ++i) {
      const std::size_t index = random->bits() % gradient.size();
      const double expected = difference(problem, operands.at(name), index);
      if (!(std::abs(gradient[index] - expected) <= 1e-6 * (size + 1))) {
        wrong += core::message(name, "[", index, "]: ", gradient[index], " for ", expected, "; ");
      }
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("the scan's gradient agrees with every golden", "[scan_grad][scan_reference]") {
  std::size_t compared = 0;
  for (const std::string& name : test::golden_names()) {
    const test::Golden golden = test::load_golden(name);
    if (golden.gradients.empty()) continue;
    const core::ScanGradProblem problem = golden_problem(golden);
    const test::NamedGrads values = test::named(core::scan_grad_reference(problem));
    const core::ScanGradValues<float> single = core::scan_grad_reference_f32(problem);
    const std::map<std::string, std::vector<float>> floats = {{"x", single.x},
                                                              {"dt", single.dt},
                                                              {"a", single.a},
                                                              {"b", single.b},
                                                              {"c", single.c},
                                                              {"d", single.d},
                                                              {"z", single.z},
                                                              {"dt_bias", single.dt_bias},
                                                              {"initial_state", single.initial_state}};
    for (const auto& [of, expected] : golden.gradients) {
      INFO(name << " " << of);
      CHECK(relative_error(values.at(of), expected) < 1e-12);
      CHECK(relative_error(floats.at(of), expected) < 2e-5);
      ++compared;
    }
  }
  if (!test::golden_names().empty()) CHECK(compared >= 200);
}

TEST_CASE("the scan's gradient agrees with finite differences of any problem", "[scan_grad]") {
  test::Random random(11);
  const auto flip = [&] { return random.bits() % 2 == 0; };
  for (std::uint64_t i = 0; i < 150; ++i) {
    ScanSpec spec;
    spec.seed = i;
    spec.batch = 1 + static_cast<std::int64_t>(random.bits() % 3);
    spec.seq = static_cast<std::int64_t>(random.bits() % 7);
    spec.dim = 6, spec.state = 1 + static_cast<std::int64_t>(random.bits() % 5);
    spec.options.discretization = static_cast<Discretization>(i % 6);
    const std::int64_t groups[] = {0, 1, 2, 3, 6};
    spec.b_groups = groups[random.bits() % 5], spec.c_groups = groups[random.bits() % 5];
    spec.complex = flip();
    spec.full_matrix = spec.options.discretization == Discretization::bilinear && !spec.complex && flip();
    spec.d = flip(), spec.z = flip(), spec.dt_bias = flip(), spec.initial_state = flip();
    spec.options.dt_softplus = flip();
    if (flip()) spec.options.dt_min = 0.05f, spec.options.dt_max = 0.21f;
    if (flip()) spec.options.direction = Direction::reverse;
    INFO(spec.to_string());
    const ScanGradCase test(spec, flip());
    keep_from_bounds(test);
    CHECK(compare_with_differences(test, &random) == "");
  }
}

TEST_CASE("the first-order hold's gradient is exact at A = 0 and near it", "[scan_grad]") {
  ScanSpec spec;
  spec.complex = GENERATE(false, true);
  spec.options.discretization = Discretization::foh;
  ScanGradCase test(spec);
  const std::size_t floats = test.inputs().scan.a.bytes / sizeof(float);
  float* a = const_cast<float*>(static_cast<const float*>(test.inputs().scan.a.data));
  const float values[] = {0.0f, -1e-6f, -1e-3f, -0.5f, -1.6f, 1e-20f};
  for (std::size_t i = 0; i < floats; ++i) a[i] = values[i % 6];
  test::Random random(3);
  for (int i = 0; i < 8; ++i) CHECK(compare_with_differences(test, &random) == "");
}

TEST_CASE("no steps: the final state's gradient is the initial state's", "[scan_grad]") {
  ScanSpec spec;
  spec.seq = 0;
  const ScanGradCase test(spec);
  const core::ScanGradValues<double> out = core::scan_grad_reference(test.problem());
  const float* expected = test.problem().d_final_state;
  CHECK(relative_error(out.initial_state.data(), expected, out.initial_state.size()) == 0.0);
  CHECK(relative_error(out.a, std::vector<double>(out.a.size())) == 0.0);
}

TEST_CASE("the gradient's inputs are checked", "[scan_grad]") {
  ScanSpec spec;
  const ScanGradCase test(spec);
  core::ScanGradInputs inputs = test.inputs();
  core::ScanOptions options;
  const auto refused = [&](const char* argument) {
    const test::CaughtError caught = test::error_of([&] { core::validate_scan_grad(inputs, options); });
    CHECK(caught.argument == argument);
    CHECK(caught.says(std::string(argument) == ":reverse" ? "direction" : argument));
  };
  inputs.dy.shape = core::Shape{2, 17, 4};
  refused("dy");
  inputs = test.inputs();
  inputs.dy.dtype = Dtype::f16;
  refused("dy");
  inputs = test.inputs();
  inputs.dy.bytes -= 4;
  refused("dy");
  inputs = test.inputs();
  inputs.d_final_state->shape = core::Shape{2, 5, 4};
  refused(":d_final_state");
  inputs = test.inputs();
  inputs.d_final_state->dtype = Dtype::c64;
  refused(":d_final_state");
  inputs = test.inputs();
  inputs.states = inputs.dy;
  refused("states");
  inputs = test.inputs();
  inputs.scan.dt.shape = core::Shape{2, 17, 6};
  refused("dt");
  inputs = test.inputs();
  options.direction = Direction::both;
  refused(":reverse");
}

}  // namespace exphil
