// What validate_associative accepts and refuses, and the oracle on examples computed by hand.
#include "core/associative/problem.hpp"

#include <limits>
#include <vector>

#include "core/associative/reference.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace exphil::test {
namespace {

using core::AssociativeInputs;
using core::AssociativeOp;
using core::AssociativeOptions;
using core::Direction;
using core::Dtype;
using core::ErrorKind;
using core::Shape;
using core::TensorView;

const std::vector<float> kValues(64, 1.0f);

TensorView view(Dtype dtype, const Shape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements("x")) * core::dtype_size(dtype);
  return {dtype, shape, kValues.data(), bytes};
}

CaughtError refused(AssociativeOp op, const AssociativeInputs& inputs,
                    const AssociativeOptions& options = {}) {
  const CaughtError error = error_of([&] { core::validate_associative(op, inputs, options); });
  CHECK(error.thrown);
  return error;
}

TEST_CASE("the scanned axis is in the middle of an associative problem") {
  AssociativeOptions options;
  options.axis = 1;
  const auto problem =
      core::validate_associative(AssociativeOp::cumsum, {view(Dtype::f32, {2, 3, 4, 2}), {}}, options);
  CHECK(problem.outer == 2);
  CHECK(problem.length == 3);
  CHECK(problem.inner == 8);
  options.axis = -1;
  const auto last =
      core::validate_associative(AssociativeOp::cumsum, {view(Dtype::f32, {2, 3, 4}), {}}, options);
  CHECK(last.outer == 6);
  CHECK(last.length == 4);
  CHECK(last.inner == 1);
}

TEST_CASE("an associative scan names the argument that it refuses") {
  const AssociativeOp sum = AssociativeOp::cumsum, recurrence = AssociativeOp::linear_recurrence;
  const TensorView x = view(Dtype::f32, {4});
  CHECK(refused(sum, {view(Dtype::f32, Shape{}), {}}).says("rank 1 to 4"));
  CHECK(refused(sum, {view(Dtype::f32, {1, 1, 1, 1, 1}), {}}).argument == "x");
  CHECK(refused(sum, {view(Dtype::f64, {4}), {}}).kind == ErrorKind::unsupported);
  CHECK(refused(AssociativeOp::cumprod, {view(Dtype::s32, {4}), {}}).says("f32, f16 or bf16"));
  CHECK(refused(sum, {{Dtype::f32, {4}, kValues.data(), 15}, {}}).says("15"));
  CHECK(refused(sum, {x, x}).argument == "a");
  CHECK(refused(recurrence, {x, {}}).argument == "a");
  CHECK(refused(recurrence, {x, view(Dtype::f32, {2, 2})}).says("{2, 2}"));
  CHECK(refused(recurrence, {x, view(Dtype::c64, {4})}).says("c64"));
  CHECK(refused(recurrence, {view(Dtype::s64, {4}), view(Dtype::s64, {4})}).argument == "b");
  for (const std::int64_t axis : {std::int64_t{1}, std::int64_t{-2}, std::int64_t{1} << 40}) {
    AssociativeOptions options;
    options.axis = axis;
    CHECK(refused(sum, {x, {}}, options).argument == ":axis");
  }
  for (const std::int64_t size : {1, 16, 48, 16384, -32}) {
    AssociativeOptions options;
    options.block_size = size;
    CHECK(refused(sum, {x, {}}, options).argument == ":block_size");
  }
  AssociativeOptions compensated;
  compensated.compensated = true;
  CHECK(refused(AssociativeOp::cummax, {x, {}}, compensated).argument == ":compensated");
  CHECK(refused(sum, {view(Dtype::s32, {4}), {}}, compensated).says("s32"));
}

template <class T>
core::AssociativeProblem problem_of(AssociativeOp op, Dtype dtype, const std::vector<T>& x,
                                    const std::vector<T>* a) {
  core::AssociativeProblem problem;
  problem.op = op;
  problem.dtype = dtype;
  problem.outer = problem.inner = 1;
  problem.length = static_cast<std::int64_t>(x.size()) / (dtype == Dtype::c64 ? 2 : 1);
  problem.x = x.data();
  problem.a = a == nullptr ? nullptr : a->data();
  return problem;
}

TEST_CASE("the associative oracle, by hand") {
  const std::vector<float> x = {2.0f, -1.0f, 3.0f}, a = {9.0f, 2.0f, 0.5f};
  const auto run = [&](AssociativeOp op, bool reverse) {
    return core::associative_reference(problem_of(op, Dtype::f32, x, &a), reverse);
  };
  CHECK(run(AssociativeOp::cumsum, false) == std::vector<double>{2, 1, 4});
  CHECK(run(AssociativeOp::cumsum, true) == std::vector<double>{4, 2, 3});
  CHECK(run(AssociativeOp::cumprod, false) == std::vector<double>{2, -2, -6});
  CHECK(run(AssociativeOp::cummax, true) == std::vector<double>{3, 3, 3});
  CHECK(run(AssociativeOp::cummin, false) == std::vector<double>{2, -1, -1});
  CHECK(run(AssociativeOp::linear_recurrence, false) == std::vector<double>{2, 3, 4.5});
  CHECK(run(AssociativeOp::linear_recurrence, true) == std::vector<double>{47, 5, 3});
}

TEST_CASE("the associative oracle: complex numbers, integers that wrap, NaN that is kept") {
  const std::vector<float> i = {0, 1, 0, 1, 0, 1}, one = {1, 0, 1, 0, 1, 0};
  CHECK(core::associative_reference(problem_of(AssociativeOp::linear_recurrence, Dtype::c64, one, &i),
                                    false) == std::vector<double>{1, 0, 1, 1, 0, 1});
  const std::vector<std::int32_t> integers = {2147483647, 1, -1};
  CHECK(core::associative_reference_integer(
            problem_of<std::int32_t>(AssociativeOp::cumsum, Dtype::s32, integers, nullptr), false) ==
        std::vector<std::int64_t>{2147483647, -2147483648LL, 2147483647});
  const std::vector<float> broken = {1, std::numeric_limits<float>::quiet_NaN(), 3};
  const auto y = core::associative_reference(
      problem_of<float>(AssociativeOp::cummax, Dtype::f32, broken, nullptr), false);
  CHECK(y[0] == 1.0);
  CHECK(y[1] != y[1]);
  CHECK(y[2] != y[2]);
}

}  // namespace
}  // namespace exphil::test
