#include "core/scan/reference.hpp"

#include <algorithm>
#include <cmath>

#include "core/half.hpp"
#include "support/catch.hpp"
#include "support/goldens.hpp"
#include "support/numbers.hpp"
#include "support/scan_case.hpp"

namespace exphil {

using core::Direction;
using core::Dtype;
using formulas::Discretization;
using test::relative_error;
using test::ScanCase;
using test::ScanSpec;

// The goldens were computed in float64 from the same f32 inputs, so only the order of sums and the last bit
// of exp differ. The remaining error was measured at 2.3e-15 at most (:foh, where exp(w) - 1 loses two bits).
constexpr double kGoldenTolerance = 1e-13;

TEST_CASE("the scalar reference agrees with every golden", "[scan_reference]") {
  const std::vector<std::string> names = test::golden_names();
  if (names.empty()) return;
  CHECK(names.size() == 40);
  double worst = 0;
  for (const std::string& name : names) {
    INFO(name);
    const test::Golden golden = test::load_golden(name);
    const core::ScanCall call = golden.call();
    CHECK(call.shape.complex == golden.complex);
    const test::ScanExpected out = test::expect(call, true);
    CHECK(relative_error(out.y, golden.y) < kGoldenTolerance);
    CHECK(relative_error(out.final_state, golden.final_state) < kGoldenTolerance);
    if (!golden.states.empty()) CHECK(relative_error(out.states, golden.states) < kGoldenTolerance);
    worst = std::max(
        {worst, relative_error(out.y, golden.y), relative_error(out.final_state, golden.final_state)});
  }
  CAPTURE(worst);
  CHECK(worst > 0);  // something was compared
}

TEST_CASE("the float version agrees with the goldens to float rounding", "[scan_reference]") {
  for (const std::string& name : test::golden_names()) {
    INFO(name);
    const test::Golden golden = test::load_golden(name);
    core::ScanCall call = golden.call();
    std::vector<float> y(golden.y.size()), final_state(golden.final_state.size());
    call.set(core::ScanOperand::y, y.data());
    call.set(core::ScanOperand::final_state, final_state.data());
    core::scan_reference_f32(call);
    CHECK(relative_error(y, golden.y) < 1e-5);
    CHECK(relative_error(final_state, golden.final_state) < 1e-5);
  }
}

TEST_CASE("a diagonal full matrix gives what the vector form gives", "[scan_reference]") {
  ScanSpec spec;
  spec.state = 4;
  spec.d = spec.initial_state = true;
  spec.options.discretization = Discretization::bilinear;
  const ScanCase vector(spec);
  std::vector<float> matrix(5 * 4 * 4);
  for (int d = 0; d < 5; ++d) {
    for (int n = 0; n < 4; ++n)
      matrix[d * 16 + n * 5] = static_cast<const float*>(vector.inputs().a.data)[d * 4 + n];
  }
  core::ScanInputs inputs = vector.inputs();
  inputs.a = {Dtype::f32, {5, 4, 4}, matrix.data(), matrix.size() * 4};
  const test::ScanExpected expected = test::expect(vector.call(), true);
  const test::ScanExpected out = test::expect(core::validate_scan(inputs, spec.options), true);
  CHECK(relative_error(out.y, expected.y) < 1e-14);
  CHECK(relative_error(out.states, expected.states) < 1e-14);
}

TEST_CASE("a full matrix satisfies the implicit equation at every step", "[scan_reference]") {
  ScanSpec spec;
  spec.batch = 1;
  spec.dim = 2;
  spec.seq = 6;
  spec.state = GENERATE(1, 7, 32);
  spec.full_matrix = spec.initial_state = true;
  spec.options.discretization = Discretization::bilinear;
  const ScanCase scan(spec);
  const test::ScanExpected out = test::expect(scan.call(), true);
  const auto at = [](const core::TensorView& view, std::int64_t i) {
    return static_cast<double>(static_cast<const float*>(view.data)[i]);
  };
  const std::int64_t n = spec.state;
  for (std::int64_t t = 0; t < spec.seq; ++t) {
    for (std::int64_t d = 0; d < spec.dim; ++d) {
      const double dt = at(scan.inputs().dt, t * spec.dim + d);
      for (std::int64_t i = 0; i < n; ++i) {
        double residual = -dt * at(scan.inputs().b, t * n + i) * at(scan.inputs().x, t * spec.dim + d);
        for (std::int64_t j = 0; j < n; ++j) {
          const double half = dt * at(scan.inputs().a, (d * n + i) * n + j) / 2;
          const double before = t == 0 ? at(*scan.inputs().initial_state, d * n + j)
                                       : out.states[((t - 1) * spec.dim + d) * n + j];
          const double after = out.states[(t * spec.dim + d) * n + j];
          residual += (i == j ? after - before : 0.0) - half * (after + before);
        }
        CHECK(std::abs(residual) < 1e-13);
      }
    }
  }
}

TEST_CASE("scanning in pieces through the state gives the same result", "[scan_reference]") {
  ScanSpec spec;
  spec.batch = 1;
  spec.seq = 1;
  spec.d = spec.z = spec.dt_bias = true;
  spec.options.dt_softplus = true;
  spec.complex = GENERATE(false, true);
  spec.options.discretization = static_cast<Discretization>(GENERATE(0, 1, 2, 3, 4, 5));
  ScanSpec full_spec = spec;
  full_spec.seq = 9;
  const ScanCase full(full_spec);
  const test::ScanExpected expected = test::expect(full.call(), true);
  // States of the first eight steps, rounded to f32, carried into the ninth.
  std::vector<float> carried;
  const std::size_t row = expected.final_state.size();
  for (std::size_t i = 0; i < row; ++i) carried.push_back(static_cast<float>(expected.states[7 * row + i]));
  const auto last = [&](const core::TensorView& view) {
    core::TensorView part = view;
    part.bytes = view.bytes / 9;
    part.data = static_cast<const std::uint8_t*>(view.data) + 8 * part.bytes;
    part.shape = core::Shape{1, 1, view.shape[2]};
    return part;
  };
  core::ScanInputs inputs = full.inputs();
  inputs.x = last(inputs.x);
  inputs.dt = last(inputs.dt);
  inputs.b = last(inputs.b);
  inputs.c = last(inputs.c);
  inputs.z = last(*inputs.z);
  inputs.initial_state = core::TensorView{spec.complex ? Dtype::c64 : Dtype::f32,
                                          {1, spec.dim, spec.state},
                                          carried.data(),
                                          carried.size() * sizeof(float)};
  const test::ScanExpected out = test::expect(core::validate_scan(inputs, spec.options));
  CHECK(relative_error(out.final_state, expected.final_state) < 2e-7);
}

TEST_CASE("both directions are the two single ones", "[scan_reference]") {
  ScanSpec spec;
  spec.z = spec.d = true;
  spec.options.direction = Direction::both;
  const ScanCase both(spec);
  const test::ScanExpected out = test::expect(both.call());
  core::ScanOptions options = spec.options;
  options.direction = Direction::forward;
  CHECK(test::expect(core::validate_scan(both.inputs(), options)).y == out.y);
  options.direction = Direction::reverse;
  CHECK(test::expect(core::validate_scan(both.inputs(), options)).y == out.y_reverse);
}

TEST_CASE("half inputs are read as their exact values", "[scan_reference]") {
  ScanSpec spec;
  spec.dtype = GENERATE(Dtype::f16, Dtype::bf16);
  spec.z = true;
  spec.b_groups = GENERATE(0, 1, 5);
  const ScanCase half(spec);
  const auto wide = [&](const core::TensorView& view) {
    return test::widen_result(view.data, view.dtype, view.bytes / 2);
  };
  std::vector<std::vector<float>> storage;
  const auto as_f32 = [&](const core::TensorView& view) {
    storage.push_back(wide(view));
    return core::TensorView{Dtype::f32, view.shape, storage.back().data(), storage.back().size() * 4};
  };
  core::ScanInputs inputs = half.inputs();
  inputs.x = as_f32(inputs.x);
  inputs.dt = as_f32(inputs.dt);
  inputs.b = as_f32(inputs.b);
  inputs.c = as_f32(inputs.c);
  inputs.z = as_f32(*inputs.z);
  const test::ScanExpected expected = test::expect(core::validate_scan(inputs, spec.options));
  CHECK(test::expect(half.call()).y == expected.y);
  std::vector<std::uint16_t> y(expected.y.size());
  core::ScanCall call = half.call();
  call.set(core::ScanOperand::y, y.data());
  core::scan_reference_f32(call);
  const double limit = spec.dtype == Dtype::f16 ? 2e-3 : 1.5e-2;
  CHECK(relative_error(test::widen_result(y.data(), spec.dtype, y.size()), expected.y) < limit);
}

TEST_CASE("dt is clamped last, an empty sequence keeps the state, NaN is kept", "[scan_reference]") {
  ScanSpec spec;
  spec.initial_state = true;
  SECTION("dt_range") {
    spec.options.dt_softplus = true;
    spec.options.dt_min = 0.2f;
    spec.options.dt_max = 0.2f;
    const test::ScanExpected clamped = test::expect(ScanCase(spec).call());
    ScanCase fixed(spec);
    std::vector<float> dt(fixed.inputs().dt.bytes / 4, 0.2f);
    core::ScanInputs inputs = fixed.inputs();
    inputs.dt.data = dt.data();
    CHECK(test::expect(core::validate_scan(inputs, core::ScanOptions{})).y == clamped.y);
  }
  SECTION("empty sequence") {
    spec.seq = 0;
    const ScanCase empty(spec);
    const test::ScanExpected out = test::expect(empty.call());
    CHECK(out.y.empty());
    const float* initial = static_cast<const float*>(empty.inputs().initial_state->data);
    CHECK(relative_error(out.final_state.data(), initial, out.final_state.size()) == 0.0);
  }
  SECTION("NaN") {
    spec.options.dt_min = 0.1f;
    spec.options.dt_max = 0.5f;
    const ScanCase scan(spec);
    std::vector<float> dt(scan.inputs().dt.bytes / 4, 0.2f);
    dt[0] = std::nanf("");
    core::ScanInputs inputs = scan.inputs();
    inputs.dt.data = dt.data();
    CHECK(std::isnan(test::expect(core::validate_scan(inputs, spec.options)).y[0]));
  }
}

}  // namespace exphil
