// The gradients of associative scans: the quadratic oracle against finite differences, and the scans of the
// host against the oracle.
#include "core/associative/gradient.hpp"

#include <cmath>
#include <cstring>

#include "core/associative/gradient_reference.hpp"
#include "core/associative/reference.hpp"
#include "core/error.hpp"
#include "host/associative/scan.hpp"
#include "support/associative_case.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/numbers.hpp"
#include "support/scan_case.hpp"

namespace exphil {

using core::AssociativeGradProblem;
using core::AssociativeOp;
using core::Direction;
using core::Dtype;
using test::AssociativeCase;

namespace {

// A case and the gradients of its results.
struct GradCase {
  AssociativeCase scan;
  std::vector<unsigned char> dy, dy_reverse;

  GradCase(AssociativeOp op, Dtype dtype, const core::Shape& shape, int axis, Direction direction)
      : scan(test::associative_case(op, dtype, shape, axis, options(axis, direction))),
        dy(test::associative_case(AssociativeOp::cumsum, dtype, shape, axis, {}, 77).x),
        dy_reverse(test::associative_case(AssociativeOp::cumsum, dtype, shape, axis, {}, 78).x) {}

  static core::AssociativeOptions options(int axis, Direction direction) {
    core::AssociativeOptions options;
    options.axis = axis;
    options.direction = direction;
    return options;
  }
  AssociativeGradProblem problem() const {
    const bool both = scan.problem.direction == Direction::both;
    return {scan.problem, dy.data(), both ? dy_reverse.data() : nullptr};
  }
};

double tolerance(Dtype dtype) {
  return dtype == Dtype::f16 ? 4e-3 : dtype == Dtype::bf16 ? 3e-2 : 2e-5;
}

std::string mismatch(const GradCase& test) {
  const AssociativeGradProblem problem = test.problem();
  const bool recurrence = problem.scan.op == AssociativeOp::linear_recurrence;
  std::vector<unsigned char> dx(problem.scan.bytes() + 64, 0xff), da(dx);
  core::associative_grad(problem, {dx.data(), recurrence ? da.data() : nullptr}, host::associative_scan);
  for (std::size_t i = problem.scan.bytes(); i < dx.size(); ++i) {
    if (dx[i] != 0xff || da[i] != 0xff) return "wrote behind a result";
  }
  const core::AssociativeGradReference expected = core::associative_grad_reference(problem);
  const auto error = [&](const std::vector<unsigned char>& out, const std::vector<double>& reference) {
    return test::relative_error(test::widen_result(out.data(), problem.scan.dtype, reference.size()),
                                reference);
  };
  const double x_error = error(dx, expected.x), a_error = recurrence ? error(da, expected.a) : 0.0;
  const double limit = tolerance(problem.scan.dtype);
  if (x_error <= limit && a_error <= limit) return "";
  return core::message(test.scan.name, ": x ", x_error, ", a ", a_error);
}

std::vector<test::AssociativeKind> floating_kinds() {
  std::vector<test::AssociativeKind> kinds;
  for (const test::AssociativeKind& kind : test::associative_kinds()) {
    if (kind.dtype != Dtype::s32 && kind.dtype != Dtype::s64) kinds.push_back(kind);
  }
  return kinds;
}

// <dy, y> + <dy_reverse, y_reverse>, with pairs as pairs.
double loss(const GradCase& test) {
  double sum = 0;
  const Direction direction = test.scan.problem.direction;
  const auto add = [&](bool reverse, const std::vector<unsigned char>& dy) {
    const std::vector<double> y = core::associative_reference(test.scan.problem, reverse);
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += y[i] * static_cast<double>(reinterpret_cast<const float*>(dy.data())[i]);
    }
  };
  add(direction == Direction::reverse, test.dy);
  if (direction == Direction::both) add(true, test.dy_reverse);
  return sum;
}

constexpr Direction kDirections[] = {Direction::forward, Direction::reverse, Direction::both};

}  // namespace

TEST_CASE("the associative gradients' oracle agrees with finite differences", "[associative_grad]") {
  for (const test::AssociativeKind& kind : floating_kinds()) {
    if (kind.dtype != Dtype::f32 && kind.dtype != Dtype::c64) continue;
    for (const Direction direction : kDirections) {
      GradCase test(kind.op, kind.dtype, {2, 6, 3}, 1, direction);
      INFO(test.scan.name);
      const core::AssociativeGradReference gradient = core::associative_grad_reference(test.problem());
      const auto check = [&](float* values, const std::vector<double>& of) {
        for (std::size_t i = 0; i < of.size(); ++i) {
          const float kept = values[i], step = 0x1p-10f;
          values[i] = kept + step;
          const double above = loss(test), at_above = values[i];
          values[i] = kept - step;
          const double below = loss(test), at_below = values[i];
          values[i] = kept;
          CHECK(std::abs((above - below) / (at_above - at_below) - of[i]) < 1e-4 * (1 + std::abs(of[i])));
        }
      };
      check(test.scan.x_floats(), gradient.x);
      if (!gradient.a.empty()) check(test.scan.a_floats(), gradient.a);
    }
  }
}

TEST_CASE("associative gradients: every type, axis, direction and length", "[host][associative_grad]") {
  for (const test::AssociativeKind& kind : floating_kinds()) {
    for (const Direction direction : kDirections) {
      for (int axis = 0; axis < 3; ++axis) {
        CHECK(mismatch(GradCase(kind.op, kind.dtype, {3, 5, 4}, axis, direction)) == "");
      }
      for (const std::int64_t length : {0, 1, 2, 17, 60, 127}) {
        CHECK(mismatch(GradCase(kind.op, kind.dtype, {2, length, 3}, 1, direction)) == "");
        CHECK(mismatch(GradCase(kind.op, kind.dtype, {2, length}, 1, direction)) == "");
      }
    }
  }
}

TEST_CASE("cumprod's gradient is exact where elements are 0", "[host][associative_grad]") {
  GradCase test(AssociativeOp::cumprod, Dtype::f32, {2, 9, 2}, 1, Direction::both);
  for (const int at : {4, 5, 12, 30}) test.scan.x_floats()[at] = 0.0f;
  CHECK(mismatch(test) == "");
}

TEST_CASE("the first of equal extrema receives the gradient; a NaN is the last one",
          "[host][associative_grad]") {
  GradCase test(AssociativeOp::cummax, Dtype::f32, {8}, 0, Direction::forward);
  const float x[] = {1.0f, 1.0f, 3.0f, 2.0f, 3.0f, std::nanf(""), 9.0f, std::nanf("")};
  const float dy[] = {1, 2, 4, 8, 16, 32, 64, 128};
  std::memcpy(test.scan.x.data(), x, sizeof x);
  std::memcpy(test.dy.data(), dy, sizeof dy);
  float dx[8];
  core::associative_grad(test.problem(), {dx, nullptr}, host::associative_scan);
  const std::vector<float> expected = {3, 0, 28, 0, 0, 224, 0, 0};
  CHECK(std::vector<float>(dx, dx + 8) == expected);
}

TEST_CASE("the inputs of associative gradients are checked", "[associative_grad]") {
  const float values[6] = {};
  const core::TensorView x{Dtype::f32, {2, 3}, values, sizeof values};
  const auto refused = [&](const core::AssociativeGradInputs& inputs, Direction direction,
                           const char* argument) {
    const test::CaughtError caught = test::error_of([&] {
      core::validate_associative_grad(AssociativeOp::cumsum, inputs, GradCase::options(1, direction));
    });
    CHECK(caught.argument == argument);
  };
  const core::TensorView wrong{Dtype::f32, {3, 2}, values, sizeof values};
  const core::TensorView integers{Dtype::s32, {2, 3}, values, sizeof values};
  refused({{x, {}}, wrong, {}}, Direction::forward, "dy");
  refused({{x, {}}, integers, {}}, Direction::forward, "dy");
  refused({{x, {}}, x, x}, Direction::forward, "dy");
  refused({{x, {}}, x, {}}, Direction::both, "dy");
  refused({{x, {}}, x, wrong}, Direction::both, "dy_reverse");
  refused({{integers, {}}, integers, {}}, Direction::forward, "x");
  refused({{x, x}, x, {}}, Direction::forward, "a");
}

}  // namespace exphil
