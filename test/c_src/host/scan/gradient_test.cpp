// The host's gradient of the scan against the goldens and the scalar oracle, on every SIMD target.
#include "host/scan/gradient.hpp"

#include <cmath>
#include <cstring>

#include "core/work/parallel.hpp"
#include "host/scan/scan.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/goldens.hpp"
#include "support/numbers.hpp"
#include "support/scan_grad_case.hpp"

namespace exphil {

using core::Direction;
using core::Dtype;
using core::ScanGradProblem;
using formulas::Discretization;
using test::GradResults;
using test::ScanGradCase;
using test::ScanSpec;

namespace {

void check_gradient(const ScanSpec& spec) {
  INFO(host::simd_target() << ": " << spec.to_string());
  CHECK(test::scan_grad_mismatch(ScanGradCase(spec, spec.seed % 2 == 0).problem(),
                                 host::selective_scan_grad) == "");
}

GradResults run(const ScanGradProblem& problem) {
  GradResults results(problem);
  host::selective_scan_grad(problem, results.outputs());
  return results;
}

}  // namespace

TEST_CASE("the host's gradient agrees with every golden", "[host][scan_grad]") {
  for (const std::string& name : test::golden_names()) {
    const test::Golden golden = test::load_golden(name);
    if (golden.gradients.empty()) continue;
    core::ScanGradInputs inputs;
    inputs.scan = golden.inputs;
    inputs.dy = {Dtype::f32, golden.inputs.x.shape, golden.dy.data(), golden.dy.size() * sizeof(float)};
    const ScanGradProblem problem = core::validate_scan_grad(inputs, golden.options);
    test::for_each_target([&] {
      const GradResults results = run(problem);
      for (const auto& [of, expected] : golden.gradients) {
        INFO(host::simd_target() << ": " << name << " " << of);
        CHECK(test::relative_error(results.values(of), expected) <= 2e-5);
      }
    });
  }
}

TEST_CASE("the host's gradient with any options", "[host][scan_grad]") {
  test::Random random(5);
  const auto flip = [&] { return random.bits() % 2 == 0; };
  for (std::uint64_t i = 0; i < 240; ++i) {
    ScanSpec spec;
    spec.seed = i;
    spec.batch = 1 + static_cast<std::int64_t>(random.bits() % 3);
    spec.seq = 1 + static_cast<std::int64_t>(random.bits() % 40);
    const std::int64_t groups[] = {0, 1, 2, 4, 8, 24, 96};
    spec.dim = flip() ? 24 : 96;
    do spec.b_groups = groups[random.bits() % 7];
    while (spec.b_groups > spec.dim);
    do spec.c_groups = groups[random.bits() % 7];
    while (spec.c_groups > spec.dim);
    test::choose_options(random, static_cast<int>(i), &spec);
    test::for_each_target([&] { check_gradient(spec); });
  }
}

TEST_CASE("the host's gradient at every length, width and state", "[host][scan_grad]") {
  test::for_each_target([] {
    for (const std::int64_t seq : {0, 1, 2, 15, 16, 17, 31, 32, 33, 127, 1000}) {
      ScanSpec spec;
      spec.batch = 1, spec.seq = seq, spec.dim = 19, spec.state = 4;
      spec.z = spec.initial_state = true;
      check_gradient(spec);
    }
    for (const std::int64_t dim : {1, 3, 15, 16, 17, 63, 64, 65, 129, 521}) {
      ScanSpec spec;
      spec.seq = 5, spec.dim = dim, spec.state = 4;
      spec.z = spec.d = spec.dt_bias = true;
      check_gradient(spec);
      spec.b_groups = dim, spec.c_groups = 0, spec.dtype = Dtype::bf16;
      check_gradient(spec);
    }
    for (const std::int64_t state : {1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 128, 256}) {
      ScanSpec spec;
      spec.seq = 18, spec.dim = 18, spec.state = state;
      spec.z = spec.d = true;
      check_gradient(spec);
      spec.complex = true;
      check_gradient(spec);
      if (state > core::kMaxFullMatrixState) continue;
      spec.complex = false, spec.full_matrix = true;
      spec.options.discretization = Discretization::bilinear;
      check_gradient(spec);
    }
  });
}

TEST_CASE("a long sequence with decays near 1 and near 0", "[host][scan_grad]") {
  ScanSpec spec;
  spec.batch = 1, spec.seq = 70001, spec.dim = 3, spec.state = 2;
  const ScanGradCase test(spec);
  float* a = const_cast<float*>(static_cast<const float*>(test.inputs().scan.a.data));
  const float decays[] = {-1e-3f, -3e-4f, -200.0f, -1e-3f, -0.01f, -50.0f};
  for (int i = 0; i < 6; ++i) a[i] = decays[i];
  CHECK(test::scan_grad_mismatch(test.problem(), host::selective_scan_grad) == "");
}

TEST_CASE("the gradient with the scan's own states gives the same bits", "[host][scan_grad]") {
  ScanSpec spec;
  spec.seq = 50, spec.dim = 70, spec.state = 5;
  spec.complex = GENERATE(false, true);
  spec.initial_state = GENERATE(false, true);
  if (GENERATE(false, true)) spec.options.direction = Direction::reverse;
  const ScanGradCase test(spec);
  ScanGradProblem problem = test.problem();
  std::vector<float> states(static_cast<std::size_t>(problem.scan.shape.state_floats() * spec.seq));
  core::ScanCall forward = problem.scan;
  forward.set(core::ScanOperand::states, states.data());
  host::selective_scan(forward);
  const GradResults expected = run(problem);
  problem.states = states.data();
  CHECK(run(problem).bytes() == expected.bytes());
}

TEST_CASE("gradients: the same bits for any thread count; a sequence's own in any batch",
          "[host][scan_grad]") {
  ScanSpec spec;
  spec.batch = 5, spec.seq = 40, spec.dim = 200, spec.state = 16;
  spec.d = spec.z = spec.initial_state = true;
  spec.complex = GENERATE(false, true);
  const ScanGradCase test(spec);
  const ScanGradProblem problem = test.problem();
  const GradResults expected = run(problem);
  core::set_threads(1);
  CHECK(run(problem).bytes() == expected.bytes());
  core::set_threads(2);
  CHECK(run(problem).bytes() == expected.bytes());
  core::set_threads(0);
  // The third sequence alone, and the others with a NaN in the first.
  const auto from_third = [&](const void* data, std::int64_t floats) {
    return static_cast<const float*>(data) + 2 * floats;
  };
  const std::int64_t stream = spec.seq * spec.dim, parts = spec.complex ? 2 : 1;
  const std::int64_t rows = spec.seq * spec.state * parts, state = spec.dim * spec.state * parts;
  ScanGradProblem alone = problem;
  alone.scan = test::slice_of(problem.scan, 2, 1);
  alone.dy = from_third(problem.dy, stream);
  alone.d_final_state = from_third(problem.d_final_state, state);
  const GradResults single = run(alone);
  static_cast<float*>(problem.scan.operands[core::ScanOperand::x])[7] = std::nanf("");
  const GradResults poisoned = run(problem);
  CHECK(std::isnan(poisoned.values("dt")[7]));
  const std::map<std::string, std::int64_t> sizes = {{"x", stream}, {"dt", stream}, {"z", stream},
                                                     {"b", rows},   {"c", rows},    {"initial_state", state}};
  for (const auto& [name, floats] : sizes) {
    INFO(name);
    const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
    CHECK(std::memcmp(single.bytes().at(name).data(), expected.bytes().at(name).data() + 2 * bytes, bytes) ==
          0);
    CHECK(std::memcmp(poisoned.bytes().at(name).data() + bytes, expected.bytes().at(name).data() + bytes,
                      4 * bytes) == 0);
  }
}

TEST_CASE("unwanted gradients are not written", "[host][scan_grad]") {
  ScanSpec spec;
  spec.d = spec.z = spec.dt_bias = true;
  const ScanGradCase test(spec);
  const ScanGradProblem problem = test.problem();
  const GradResults expected = run(problem);
  GradResults one(problem);
  core::ScanGradOutputs outputs;
  outputs.b = one.outputs().b;
  host::selective_scan_grad(problem, outputs);
  CHECK(one.values("b") == expected.values("b"));
  host::selective_scan_grad(problem, core::ScanGradOutputs{});
}

}  // namespace exphil
