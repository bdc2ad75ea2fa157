// The logic of the associative-scan kernels, on the CPU (support/associative_grid.hpp): tails, several tiles
// and windows, the hand-over, and segments that leave f32's range. The same kernels run on a GPU in
// test/c_src/cuda.
#include "support/associative_grid.hpp"

#include <algorithm>

#include "support/associative_case.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil::test {
namespace {

using associative::Arguments;
using associative::Element;
using core::AssociativeOp;
using core::AssociativeOutputs;
using core::AssociativeProblem;
using core::Direction;
using core::Dtype;

long long divide_up(long long size, long long by) {
  return (size + by - 1) / by;
}

struct Launch {
  int lanes;  // 0: rows
  bool walk;
  int warps;
  bool rows() const { return lanes == 0; }
};

constexpr int kItems = 4;

// Replaces the launcher in c_src/cuda for the emulated grid.
template <class Kernel>
void launch(const AssociativeProblem& problem, const AssociativeOutputs& outputs, const Launch& how) {
  Arguments p{};
  p.a = problem.a;
  p.x = problem.x;
  p.initial = problem.initial;
  p.y = outputs.y;
  p.y_reverse = problem.direction == Direction::both ? outputs.y_reverse : outputs.y;
  p.length = problem.length;
  p.inner = problem.inner;
  p.columns = problem.outer * problem.inner;
  p.tile = kItems * how.warps * 32 / std::max(how.lanes, 1);
  p.tiles = divide_up(p.length, p.tile);
  p.warps = how.warps;
  p.first_direction = problem.direction == Direction::reverse ? 1 : 0;
  const long long groups = divide_up(p.columns, std::max(how.lanes, 1));
  const unsigned directions = problem.direction == Direction::both ? 2 : 1;
  const long long words = p.tiles * associative::kSummaryWords +
                          divide_up(p.tiles, associative::kWindow) * associative::kStateWords;
  std::vector<unsigned> exchange(static_cast<std::size_t>(p.columns * directions * words));
  p.exchange = exchange.data();
  const bool hand_over_warp = how.rows() && (how.warps > 1 || p.tiles > 1);
  grid::run({static_cast<unsigned>((how.walk ? 1 : p.tiles) * groups), directions, 1},
            {32, static_cast<unsigned>(how.warps + (hand_over_warp ? 1 : 0)), 1},
            [&] { Kernel::run_block(p); });
}

template <AssociativeOp O, Element E, bool Compensated, bool Initial = false>
void run_variant(const AssociativeProblem& problem, const AssociativeOutputs& outputs, const Launch& how) {
  using namespace associative;
  if (how.rows()) {
    launch<Rows<O, E, Compensated, kItems, Initial>>(problem, outputs, how);
  } else if (how.walk) {
    launch<Columns<O, E, Compensated, kItems, 16, true, Initial>>(problem, outputs, how);
  } else if (how.lanes == 4) {
    launch<Columns<O, E, Compensated, kItems, 4, false, Initial>>(problem, outputs, how);
  } else {
    launch<Columns<O, E, Compensated, kItems, 16, false, Initial>>(problem, outputs, how);
  }
}

template <AssociativeOp O, Element E>
AssociativeRun runner(const Launch& how) {
  return [how](const AssociativeProblem& problem, const AssociativeOutputs& outputs) {
    if constexpr (O == AssociativeOp::cumsum && E != Element::s32 && E != Element::s64) {
      if (problem.compensated) return run_variant<O, E, true>(problem, outputs, how);
    }
    if constexpr (O == AssociativeOp::linear_recurrence) {
      if (problem.initial != nullptr) return run_variant<O, E, false, true>(problem, outputs, how);
    }
    run_variant<O, E, false>(problem, outputs, how);
  };
}

AssociativeRun runner(AssociativeOp op, Dtype dtype, const Launch& how) {
  using O = AssociativeOp;
  using E = Element;
  switch (op) {
    case O::cumsum:
      if (dtype == Dtype::f32) return runner<O::cumsum, E::f32>(how);
      if (dtype == Dtype::f16) return runner<O::cumsum, E::f16>(how);
      if (dtype == Dtype::bf16) return runner<O::cumsum, E::bf16>(how);
      if (dtype == Dtype::c64) return runner<O::cumsum, E::c64>(how);
      if (dtype == Dtype::s32) return runner<O::cumsum, E::s32>(how);
      return runner<O::cumsum, E::s64>(how);
    case O::cumprod:
      if (dtype == Dtype::f32) return runner<O::cumprod, E::f32>(how);
      if (dtype == Dtype::f16) return runner<O::cumprod, E::f16>(how);
      return runner<O::cumprod, E::bf16>(how);
    case O::cummax:
      if (dtype == Dtype::f32) return runner<O::cummax, E::f32>(how);
      if (dtype == Dtype::f16) return runner<O::cummax, E::f16>(how);
      if (dtype == Dtype::bf16) return runner<O::cummax, E::bf16>(how);
      if (dtype == Dtype::s32) return runner<O::cummax, E::s32>(how);
      return runner<O::cummax, E::s64>(how);
    case O::cummin:
      if (dtype == Dtype::f32) return runner<O::cummin, E::f32>(how);
      if (dtype == Dtype::f16) return runner<O::cummin, E::f16>(how);
      if (dtype == Dtype::bf16) return runner<O::cummin, E::bf16>(how);
      if (dtype == Dtype::s32) return runner<O::cummin, E::s32>(how);
      return runner<O::cummin, E::s64>(how);
    case O::linear_recurrence:
      if (dtype == Dtype::f32) return runner<O::linear_recurrence, E::f32>(how);
      if (dtype == Dtype::f16) return runner<O::linear_recurrence, E::f16>(how);
      if (dtype == Dtype::bf16) return runner<O::linear_recurrence, E::bf16>(how);
      return runner<O::linear_recurrence, E::c64>(how);
  }
  return {};
}

// Columns and rows, with one warp and with several.
struct Layout {
  Launch how;
  core::Shape shape(std::int64_t length) const {
    return how.rows() ? core::Shape{2, length} : core::Shape{2, length, 3};
  }
};
const Layout kLayouts[] = {{{4, false, 1}},  {{16, false, 1}}, {{16, false, 4}}, {{16, true, 1}},
                           {{16, true, 16}}, {{0, false, 1}},  {{0, false, 3}},  {{0, false, 8}}};

TEST_CASE("the scan kernels agree with the oracle for every operation, type and direction") {
  for (const AssociativeKind& kind : associative_kinds()) {
    for (const Layout& layout : kLayouts) {
      for (const std::int64_t length : {1, 33, 257}) {
        core::AssociativeOptions options;
        options.direction = length == 33 ? Direction::reverse : Direction::both;
        const AssociativeCase test = associative_case(kind.op, kind.dtype, layout.shape(length), 1, options);
        CHECK(associative_mismatch(test, runner(kind.op, kind.dtype, layout.how)) == "");
      }
    }
  }
}

TEST_CASE("the scan kernels start a recurrence from its initial state") {
  const auto op = AssociativeOp::linear_recurrence;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::c64}) {
    for (const Layout& layout : kLayouts) {
      for (const std::int64_t length : {1, 33, 257}) {
        core::AssociativeOptions options;
        options.direction = length == 33 ? Direction::reverse : Direction::both;
        const AssociativeCase test = associative_case(op, dtype, layout.shape(length), 1, options);
        CHECK(associative_mismatch(with_initial_state(test), runner(op, dtype, layout.how)) == "");
      }
    }
    const AssociativeCase windows = with_initial_state(associative_case(op, dtype, {3000, 3}, 0));
    CHECK(associative_mismatch(windows, runner(op, dtype, {16, false, 1})) == "");
  }
}

TEST_CASE("the scan kernels hand over across windows") {
  // One operation for each form of a summary.
  for (const AssociativeKind& kind : {AssociativeKind{AssociativeOp::cumsum, Dtype::f32},
                                      {AssociativeOp::cummax, Dtype::s64},
                                      {AssociativeOp::linear_recurrence, Dtype::f32},
                                      {AssociativeOp::linear_recurrence, Dtype::c64}}) {
    // 8 steps a tile: 2 windows of 256 tiles in the columns; 128 a tile and 2 windows in the rows.
    const AssociativeCase columns = associative_case(kind.op, kind.dtype, {3000, 3}, 0);
    CHECK(associative_mismatch(columns, runner(kind.op, kind.dtype, {16, false, 1})) == "");
    const AssociativeCase rows = associative_case(kind.op, kind.dtype, {40001}, 0);
    CHECK(associative_mismatch(rows, runner(kind.op, kind.dtype, {0, false, 1})) == "");
  }
}

TEST_CASE("the scan kernels handle more than 32 columns") {
  const AssociativeCase test = associative_case(AssociativeOp::linear_recurrence, Dtype::f32, {3, 50, 37}, 1);
  CHECK(associative_mismatch(test, runner(AssociativeOp::linear_recurrence, Dtype::f32, {16, false, 2})) ==
        "");
  CHECK(associative_mismatch(test, runner(AssociativeOp::linear_recurrence, Dtype::f32, {16, true, 2})) ==
        "");
}

TEST_CASE("compensated sums are within 2 ulp where plain ones are not") {
  for (const bool rows : {true, false}) {
    core::AssociativeOptions options;
    options.compensated = true;
    const core::Shape shape = rows ? core::Shape{8192} : core::Shape{8192, 2};
    AssociativeCase test = associative_case(AssociativeOp::cumsum, Dtype::f32, shape, 0, options);
    for (std::size_t i = 0; i < test.x.size() / 4; ++i) test.x_floats()[i] = 0.1f;
    CHECK(associative_mismatch(test, runner(AssociativeOp::cumsum, Dtype::f32, {rows ? 0 : 16, false, 2})) ==
          "");
  }
}

// Elements where composed arithmetic and the sequential loop could differ.
void plant(AssociativeCase* test, const std::vector<std::pair<std::size_t, float>>& x,
           const std::vector<std::pair<std::size_t, float>>& a) {
  for (const auto& [index, value] : x) test->x_floats()[index] = value;
  for (const auto& [index, value] : a) test->a_floats()[index] = value;
}

TEST_CASE("NaN, infinity and overflow propagate in the scan kernels as in the sequential loop") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<std::size_t, float>> plants[] = {
      {{5, inf}},
      {{700, nan}},
      {{3, inf}, {900, -inf}},
      {{0, -inf}, {400, nan}},
      {{77, 3e38f}, {400, 3e38f}},
      {{10, 3e38f}, {300, 3e38f}, {301, -3e38f}, {600, -3e38f}},
      {{64, 0.0f}, {5, inf}},
      {{2, 1e30f}, {3, 1e30f}}};
  const AssociativeOp ops[] = {AssociativeOp::cumsum, AssociativeOp::cumprod, AssociativeOp::cummax,
                               AssociativeOp::cummin, AssociativeOp::linear_recurrence};
  for (const Layout& layout : {Layout{{16, false, 8}}, Layout{{16, true, 8}}, Layout{{0, false, 2}}}) {
    for (const AssociativeOp op : ops) {
      for (const auto& x : plants) {
        AssociativeCase test = associative_case(op, Dtype::f32, layout.shape(1000), 1);
        plant(&test, x, {});
        CHECK(associative_range_mismatch(test, runner(op, Dtype::f32, layout.how)) == "");
        if (op != AssociativeOp::linear_recurrence) continue;
        plant(&test, {}, x);
        CHECK(associative_range_mismatch(test, runner(op, Dtype::f32, layout.how)) == "");
      }
    }
  }
}

TEST_CASE("a recurrence whose decays overflow or underflow follows the sequential loop") {
  for (const Layout& layout : {Layout{{16, false, 8}}, Layout{{16, true, 8}}, Layout{{0, false, 2}}}) {
    for (const float decay : {1.2f, -1.2f, 1e-3f, 1e20f, 0.0f}) {
      for (const float start : {0.0f, 1.0f, 1e-30f, 1e30f, std::numeric_limits<float>::infinity()}) {
        AssociativeCase test =
            associative_case(AssociativeOp::linear_recurrence, Dtype::f32, layout.shape(1000), 1);
        for (std::size_t i = 0; i < test.x.size() / 4; ++i) {
          test.x_floats()[i] = i < 6 ? start : 0.0f;
          test.a_floats()[i] = decay;
        }
        INFO("decay " << decay << ", start " << start << ", lanes " << layout.how.lanes);
        CHECK(associative_range_mismatch(
                  test, runner(AssociativeOp::linear_recurrence, Dtype::f32, layout.how)) == "");
      }
    }
  }
}

}  // namespace
}  // namespace exphil::test
