// The gradient of a linear recurrence from known results, on the host.
#include "core/associative/recurrence_gradient.hpp"

#include "host/associative/scan.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/recurrence_grad_case.hpp"

namespace exphil::test {
namespace {

using core::AssociativeOptions;
using core::Dtype;
using core::Shape;
using core::TensorView;

const RecurrenceGradRun kHost = [](const core::RecurrenceGradProblem& problem,
                                   const core::RecurrenceGradOutputs& outputs) {
  core::recurrence_grad(problem, outputs, host::associative_scan);
};

TEST_CASE("a recurrence's gradient from its results: types, axes, lengths, directions, initial states",
          "[host][associative_grad]") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::c64}) {
    for (const std::int64_t length : {1, 2, 33, 300}) {
      for (const bool reverse : {false, true}) {
        for (const bool initial : {false, true}) {
          for (const int axis : {0, 1, 2}) {
            Shape shape = axis == 0   ? Shape{length, 2, 5}
                          : axis == 1 ? Shape{2, length, 5}
                                      : Shape{2, 5, length};
            const auto test = recurrence_grad_case(dtype, shape, axis, reverse, initial);
            CHECK(recurrence_grad_mismatch(test, kHost) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("without steps the gradient of the initial state is 0", "[host][associative_grad]") {
  core::RecurrenceGradProblem problem;
  problem.scan.op = core::AssociativeOp::linear_recurrence;
  problem.scan.outer = 1, problem.scan.length = 0, problem.scan.inner = 3;
  float initial[4] = {1, 1, 1, 7};
  kHost(problem, {nullptr, nullptr, initial});
  CHECK((initial[0] == 0.0f && initial[2] == 0.0f && initial[3] == 7.0f));
}

TEST_CASE("the inputs of a recurrence's gradient are checked", "[associative_grad]") {
  const auto test = recurrence_grad_case(Dtype::f32, {2, 4, 3}, 1, false, true);
  const Shape shape{2, 4, 3}, columns{2, 3};
  const auto view = [](const std::vector<unsigned char>& bytes, const Shape& shape) {
    return TensorView{Dtype::f32, shape, bytes.data(), bytes.size()};
  };
  const core::RecurrenceGradInputs good{view(test.scan.a, shape), view(test.h, shape), view(test.dh, shape),
                                        view(test.scan.initial, columns)};
  AssociativeOptions options;
  options.axis = 1;
  CHECK(core::validate_recurrence_grad(good, options).scan.initial == test.scan.initial.data());
  const auto argument_of = [&](core::RecurrenceGradInputs inputs, AssociativeOptions given) {
    return error_of([&] { core::validate_recurrence_grad(inputs, given); }).argument;
  };
  core::RecurrenceGradInputs bad = good;
  bad.h.shape = columns;
  CHECK(argument_of(bad, options) == "h");
  bad = good;
  bad.dh.dtype = Dtype::f16;
  CHECK(argument_of(bad, options) == "dh");
  bad = good;
  bad.initial_state->shape = Shape{3, 2};
  CHECK(argument_of(bad, options) == "initial_state");
  bad.initial_state->shape = columns;
  bad.initial_state->dtype = Dtype::c64;
  CHECK(argument_of(bad, options) == "initial_state");
  AssociativeOptions both = options;
  both.direction = core::Direction::both;
  CHECK(argument_of(good, both) == "direction");
}

}  // namespace
}  // namespace exphil::test
