// The associative scans on the CPU against the double oracle and the sequential loop, on every SIMD target
// that this machine has.
#include "host/associative/scan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/associative/reference.hpp"
#include "core/work/parallel.hpp"
#include "host/simd/targets.hpp"
#include "support/associative_case.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using core::AssociativeOp;
using core::AssociativeOptions;
using core::Direction;
using core::Dtype;
using core::Shape;

const AssociativeRun kHost = [](const core::AssociativeProblem& problem,
                                const core::AssociativeOutputs& outputs) {
  host::associative_scan(problem, outputs);
};

TEST_CASE("associative scans on the host agree with the oracle: operations, types, lengths, directions") {
  for_each_target([] {
    for (const AssociativeKind& kind : associative_kinds()) {
      for (const std::int64_t length : {0, 1, 2, 31, 32, 33, 255, 256, 257, 1023, 4096}) {
        for (const Direction direction : {Direction::forward, Direction::reverse, Direction::both}) {
          AssociativeOptions options;
          options.direction = direction;
          CHECK(associative_mismatch(associative_case(kind.op, kind.dtype, {2, length}, -1, options),
                                     kHost) == "");
          CHECK(associative_mismatch(associative_case(kind.op, kind.dtype, {2, length, 19}, 1, options),
                                     kHost) == "");
        }
      }
    }
  });
}

TEST_CASE("associative scans of long sequences on the host") {
  for (const AssociativeKind& kind : associative_kinds()) {
    CHECK(associative_mismatch(associative_case(kind.op, kind.dtype, {70001, 3}, 0), kHost) == "");
    CHECK(associative_mismatch(associative_case(kind.op, kind.dtype, {1000003}, 0), kHost) == "");
  }
}

TEST_CASE("every axis of every rank, on the host") {
  for (const AssociativeKind& kind : associative_kinds()) {
    for (const Shape& shape :
         {Shape{37}, Shape{5, 37}, Shape{3, 17, 5}, Shape{3, 5, 7, 33}, Shape{2, 3, 1, 1}}) {
      for (int axis = -shape.rank(); axis < shape.rank(); ++axis) {
        AssociativeOptions options;
        options.direction = Direction::both;
        CHECK(associative_mismatch(associative_case(kind.op, kind.dtype, shape, axis, options), kHost) == "");
      }
    }
  }
}

TEST_CASE("a recurrence on the host starts from its initial state: types, axes, lengths, directions") {
  for_each_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::c64}) {
      for (const std::int64_t length : {1, 2, 33, 257, 4096}) {
        for (const Direction direction : {Direction::forward, Direction::reverse, Direction::both}) {
          AssociativeOptions options;
          options.direction = direction;
          for (const Shape& shape : {Shape{3, length}, Shape{2, length, 19}}) {
            const AssociativeCase test =
                associative_case(AssociativeOp::linear_recurrence, dtype, shape, 1, options);
            CHECK(associative_mismatch(with_initial_state(test), kHost) == "");
          }
        }
      }
      const AssociativeCase wide = associative_case(AssociativeOp::linear_recurrence, dtype, {2, 7, 2063}, 1);
      CHECK(associative_mismatch(with_initial_state(wide), kHost) == "");
    }
  });
}

TEST_CASE("more columns than one sweep") {
  for (const AssociativeOp op : {AssociativeOp::cumsum, AssociativeOp::linear_recurrence}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::c64}) {
      CHECK(associative_mismatch(associative_case(op, dtype, {2, 7, 2063}, 1), kHost) == "");
    }
  }
}

// Distance in units in the last place of `expected` in f32.
double ulps(float out, double expected) {
  const float nearest = std::abs(static_cast<float>(expected));
  const double unit = std::nextafter(nearest, std::numeric_limits<float>::infinity()) - nearest;
  return std::abs(out - expected) / unit;
}

// The error of the cumulative sum of elements spread evenly over [low, low + spread).
double worst_ulps(bool compensated, const Shape& shape, float low, float spread) {
  AssociativeOptions options;
  options.compensated = compensated;
  AssociativeCase test = associative_case(AssociativeOp::cumsum, Dtype::f32, shape, 0, options);
  const std::size_t count = test.x.size() / 4;
  for (std::size_t i = 0; i < count; ++i)
    test.x_floats()[i] = low + spread * 0.5f * (test.x_floats()[i] + 1.0f);
  std::vector<float> y(count);
  host::associative_scan(test.problem, {y.data(), nullptr});
  const std::vector<double> expected = core::associative_reference(test.problem, false);
  double worst = 0.0;
  for (std::size_t i = 0; i < count; ++i) worst = std::max(worst, ulps(y[i], expected[i]));
  return worst;
}

TEST_CASE("compensated sums are within 2 ulp of the double sum, where plain ones are not") {
  for (const std::int64_t length : {8192, 1000000}) {
    for (const Shape& shape : {Shape{length}, Shape{length, 2}}) {
      INFO("length " << length << ", rank " << shape.rank());
      // Equal elements make every rounding error the same.
      for (const float spread : {1.0f, 0.0f}) {
        CHECK(worst_ulps(true, shape, 0.1f, spread) <= 2.0);
        CHECK(worst_ulps(false, shape, 0.1f, spread) > 2.0);
      }
    }
  }
}

TEST_CASE("compensated sums of every type, and their infinities") {
  AssociativeOptions options;
  options.compensated = true;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::c64}) {
    for (const Shape& shape : {Shape{3, 1000}, Shape{3, 1000, 18}}) {
      CHECK(associative_mismatch(associative_case(AssociativeOp::cumsum, dtype, shape, 1, options), kHost) ==
            "");
    }
  }
  for (const Shape& shape : {Shape{3000}, Shape{3000, 18}}) {
    AssociativeCase test = associative_case(AssociativeOp::cumsum, Dtype::f32, shape, 0, options);
    test.x_floats()[500] = std::numeric_limits<float>::infinity();
    test.x_floats()[2000] = -std::numeric_limits<float>::infinity();
    CHECK(associative_range_mismatch(test, kHost) == "");
  }
}

TEST_CASE("NaN, infinity and overflow on the host propagate as in the sequential loop") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for_each_target([&] {
    for (const AssociativeOp op : {AssociativeOp::cumsum, AssociativeOp::cumprod, AssociativeOp::cummax,
                                   AssociativeOp::cummin, AssociativeOp::linear_recurrence}) {
      for (const Shape& shape : {Shape{2000}, Shape{500, 20}}) {
        for (const std::size_t place : {0, 100, 777}) {
          for (const float value : {inf, -inf, nan, 3e38f, -3e38f, 1e-30f, 0.0f}) {
            AssociativeCase test = associative_case(op, Dtype::f32, shape, 0);
            test.x_floats()[place] = value;
            test.x_floats()[place + 1] = value;
            test.x_floats()[1700] = -inf;
            if (op == AssociativeOp::linear_recurrence) test.a_floats()[place + 40] = value;
            CHECK(associative_range_mismatch(test, kHost) == "");
          }
        }
      }
    }
  });
}

TEST_CASE("a recurrence whose decays overflow or underflow follows the loop on the host") {
  for (const Shape& shape : {Shape{2000}, Shape{2000, 20}}) {
    for (const float decay : {1.2f, -1.2f, 1e-3f, 1e20f, 0.0f}) {
      for (const float start : {0.0f, 1.0f, 1e-30f, 1e30f, std::numeric_limits<float>::infinity()}) {
        AssociativeCase test = associative_case(AssociativeOp::linear_recurrence, Dtype::f32, shape, 0);
        std::fill(test.a_floats(), test.a_floats() + test.a.size() / 4, decay);
        std::fill(test.x_floats(), test.x_floats() + test.x.size() / 4, 0.0f);
        std::fill(test.x_floats(), test.x_floats() + 40, start);
        INFO("decay " << decay << ", start " << start);
        CHECK(associative_range_mismatch(test, kHost) == "");
      }
    }
  }
}

TEST_CASE("the thread count does not change the bits of an associative scan") {
  for (const AssociativeOp op : {AssociativeOp::cumsum, AssociativeOp::linear_recurrence}) {
    for (const Shape& shape : {Shape{64, 3000}, Shape{8, 300, 700}}) {
      const AssociativeCase test = associative_case(op, Dtype::f32, shape, 1);
      std::vector<unsigned char> one(test.x.size()), many(test.x.size());
      core::set_threads(1);
      host::associative_scan(test.problem, {one.data(), nullptr});
      core::set_threads(3);
      host::associative_scan(test.problem, {many.data(), nullptr});
      core::set_threads(0);
      CHECK(one == many);
    }
  }
}

}  // namespace
}  // namespace exphil::test
