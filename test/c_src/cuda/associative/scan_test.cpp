// The associative scans on a real device, and their plans, which need no device.
#include "cuda/associative/scan.hpp"

#include <limits>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "support/associative_case.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"

namespace exphil::test {
namespace {

using core::AssociativeOp;
using core::AssociativeOptions;
using core::Direction;
using core::Dtype;

core::AssociativeProblem problem_of(AssociativeOp op, Dtype dtype, std::int64_t outer, std::int64_t length,
                                    std::int64_t inner) {
  core::AssociativeProblem problem;
  problem.op = op;
  problem.dtype = dtype;
  problem.outer = outer;
  problem.length = length;
  problem.inner = inner;
  return problem;
}

TEST_CASE("an associative plan covers the sequence, whatever its length and type") {
  for (const AssociativeKind& kind : associative_kinds()) {
    for (const std::int64_t inner : {1, 3, 512}) {
      for (const std::int64_t length : {1, 31, 60, 1023, 4096, 1000003}) {
        const cuda::AssociativePlan plan =
            cuda::plan_associative(problem_of(kind.op, kind.dtype, 2, length, inner));
        const auto& p = plan.arguments;
        INFO(core::associative_op_name(kind.op) << " " << length << " x " << inner);
        CHECK(p.tiles * p.tile >= length);
        CHECK((p.tiles - 1) * p.tile < length);
        CHECK(plan.block.x * plan.block.y <= 512);
        const std::int64_t lanes = inner == 1 ? 1 : 2 * inner <= 8 ? 4 : 16;
        const bool one_block = p.tiles == 1 || (inner > 1 && length <= 8192);
        CHECK(plan.grid.x == (one_block ? 1 : p.tiles) * ((2 * inner + lanes - 1) / lanes));
        CHECK((plan.scratch_bytes() == 0) == one_block);
      }
    }
  }
}

TEST_CASE("how a sequence is split depends on its length, not on the batch") {
  const auto tile = [](std::int64_t outer, std::int64_t inner) {
    return cuda::plan_associative(problem_of(AssociativeOp::cumsum, Dtype::f32, outer, 5000, inner))
        .arguments.tile;
  };
  CHECK(tile(1, 2) == tile(4096, 1031));
  CHECK(tile(1, 32) == tile(4096, 1031));
  CHECK(tile(1, 1) == tile(4096, 1));
}

TEST_CASE("a forced block size is the nearest that a block can hold") {
  core::AssociativeProblem problem = problem_of(AssociativeOp::cumsum, Dtype::f32, 1, 100000, 4);
  for (const std::int64_t size : {32, 64, 128, 256, 512}) {
    problem.block_size = size;
    CHECK(cuda::plan_associative(problem).arguments.tile == size);
  }
  problem.block_size = 8192;
  CHECK(cuda::plan_associative(problem).arguments.tile == 512);
  problem.inner = 1;
  CHECK(cuda::plan_associative(problem).arguments.tile == 4096);
}

TEST_CASE("a grid beyond the limit is refused") {
  const auto problem = problem_of(AssociativeOp::cumsum, Dtype::f32, std::int64_t{1} << 40, 1, 1);
  const CaughtError error = error_of([&] { cuda::plan_associative(problem); });
  CHECK(error.kind == core::ErrorKind::limit_exceeded);
}

AssociativeRun on_device() {
  return [](const core::AssociativeProblem& problem, const core::AssociativeOutputs& outputs) {
    cuda::run_associative(*cuda::Context::open(0), problem, outputs);
  };
}

TEST_CASE("associative scans on the device agree with the oracle", "[gpu]") {
  if (!have_device()) return;
  for (const AssociativeKind& kind : associative_kinds()) {
    for (const std::int64_t length : {0, 1, 2, 31, 32, 33, 255, 256, 257, 1023, 4096, 70001}) {
      for (const Direction direction : {Direction::forward, Direction::both}) {
        AssociativeOptions options;
        options.direction = direction;
        CHECK(associative_mismatch(associative_case(kind.op, kind.dtype, {3, length}, -1, options),
                                   on_device()) == "");
        CHECK(associative_mismatch(associative_case(kind.op, kind.dtype, {2, length, 5}, 1, options),
                                   on_device()) == "");
      }
    }
    AssociativeOptions reverse;
    reverse.direction = Direction::reverse;
    CHECK(associative_mismatch(associative_case(kind.op, kind.dtype, {257, 2, 3, 67}, 0, reverse),
                               on_device()) == "");
    CHECK(associative_mismatch(associative_case(kind.op, kind.dtype, {1000003}, 0), on_device()) == "");
    CHECK(associative_mismatch(associative_case(kind.op, kind.dtype, {1000003, 2}, 0), on_device()) == "");
  }
}

TEST_CASE("a recurrence on the device starts from its initial state", "[gpu]") {
  if (!have_device()) return;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::c64}) {
    for (const core::Shape& shape : {core::Shape{3, 1}, core::Shape{3, 257}, core::Shape{1, 70001},
                                     core::Shape{2, 60, 512}, core::Shape{2, 70001, 5}}) {
      AssociativeOptions options;
      options.direction = Direction::both;
      const AssociativeCase test =
          associative_case(AssociativeOp::linear_recurrence, dtype, shape, 1, options);
      CHECK(associative_mismatch(with_initial_state(test), on_device()) == "");
    }
  }
}

TEST_CASE("a recurrence with an initial state, with its kernels on the CPU", "[.emulated_recurrence]") {
  emulate_launches();
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::c64}) {
    for (const core::Shape& shape : {core::Shape{2, 33}, core::Shape{2, 40, 5}, core::Shape{1, 9000, 2}}) {
      AssociativeOptions options;
      options.direction = Direction::both;
      const AssociativeCase test =
          associative_case(AssociativeOp::linear_recurrence, dtype, shape, 1, options);
      CHECK(associative_mismatch(test, on_device()) == "");
      CHECK(associative_mismatch(with_initial_state(test), on_device()) == "");
    }
  }
}

TEST_CASE("every block size gives the device's result", "[gpu]") {
  if (!have_device()) return;
  for (const std::int64_t size : {32, 64, 128, 256, 1024, 4096}) {
    AssociativeOptions options;
    options.block_size = size;
    for (const AssociativeOp op : {AssociativeOp::cumsum, AssociativeOp::linear_recurrence}) {
      CHECK(associative_mismatch(associative_case(op, Dtype::f32, {70001}, 0, options), on_device()) == "");
      CHECK(associative_mismatch(associative_case(op, Dtype::f32, {2, 5000, 40}, 1, options), on_device()) ==
            "");
      CHECK(associative_mismatch(associative_case(op, Dtype::f32, {20000, 6}, 0, options), on_device()) ==
            "");
      CHECK(associative_mismatch(associative_case(op, Dtype::f32, {20000, 19}, 0, options), on_device()) ==
            "");
    }
  }
}

TEST_CASE("NaN and infinity propagate on the device as in the sequential loop", "[gpu]") {
  if (!have_device()) return;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const AssociativeOp op : {AssociativeOp::cumsum, AssociativeOp::cumprod, AssociativeOp::cummax,
                                 AssociativeOp::cummin, AssociativeOp::linear_recurrence}) {
    for (const core::Shape& shape : {core::Shape{20000}, core::Shape{5000, 4}}) {
      for (const std::size_t place : {0, 777, 15000}) {
        for (const float value : {inf, -inf, nan, 3e38f, 0.0f}) {
          AssociativeCase test = associative_case(op, Dtype::f32, shape, 0);
          test.x_floats()[place] = value;
          test.x_floats()[17000] = inf;
          if (op == AssociativeOp::linear_recurrence) test.a_floats()[place + 100] = value;
          CHECK(associative_range_mismatch(test, on_device()) == "");
        }
      }
    }
  }
}

TEST_CASE("the device gives the same bits again, and in any batch", "[gpu]") {
  if (!have_device()) return;
  const AssociativeCase many =
      associative_case(AssociativeOp::linear_recurrence, Dtype::f32, {6, 9000, 33}, 1);
  AssociativeCase one = many;
  const std::size_t bytes = one.x.size() / 6;
  one.problem.outer = 1;
  one.problem.x = many.x.data() + 4 * bytes;
  one.problem.a = many.a.data() + 4 * bytes;
  std::vector<unsigned char> all(6 * bytes), again(6 * bytes), alone(bytes);
  on_device()(many.problem, {all.data(), nullptr});
  on_device()(many.problem, {again.data(), nullptr});
  on_device()(one.problem, {alone.data(), nullptr});
  CHECK(all == again);
  CHECK(std::equal(alone.begin(), alone.end(), all.begin() + static_cast<std::ptrdiff_t>(4 * bytes)));
}

}  // namespace
}  // namespace exphil::test
