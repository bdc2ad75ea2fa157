#include "cuda/associative/plan.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "cuda/associative/variants.hpp"
#include "cuda/divide_up.hpp"

namespace exphil::cuda {

namespace {

using associative::kMaxWarps;
using core::AssociativeOp;
using core::AssociativeProblem;
using core::Dtype;

std::int64_t power_of_two_from(std::int64_t size) {
  std::int64_t power = 1;
  while (power < size) power *= 2;
  return power;
}

// The longest sequence that one block scans from end to end. A longer one is split into tiles of several
// blocks, which pass the state on.
constexpr std::int64_t kLongestSingleBlock = 8192;
// With so few columns most lanes of a wide block would be idle.
constexpr std::int64_t kNarrow = 8;
constexpr int kNarrowLanes = 4, kLanes = 16;
constexpr std::int64_t kMinStretches = 8;

struct Cut {
  int items, warps, lanes;
  bool walk;
  std::int64_t tile;
};

bool is_wide(const AssociativeProblem& problem) {
  return problem.dtype == Dtype::c64 || problem.dtype == Dtype::s64;
}

bool is_recurrence(const AssociativeProblem& problem) {
  return problem.op == AssociativeOp::linear_recurrence;
}

// Contiguous sequences: small tiles spread a short problem over more of the chip, large ones need fewer
// hand-overs. A thread holds as many elements as fit in its registers.
Cut cut_rows(const AssociativeProblem& problem, const AssociativeTuning& tuning) {
  const int few = 4, many = is_wide(problem) ? 8 : 16;
  std::int64_t tile = problem.block_size;
  if (tile == 0) {
    tile = problem.length <= 1024 ? power_of_two_from(problem.length) : std::int64_t{many} * 32 * kMaxWarps;
  }
  Cut cut{tile <= few * 32 * kMaxWarps ? few : many, 0, 0, false, 0};
  if (tuning.items != 0) cut.items = tuning.items;
  cut.warps = static_cast<int>(std::clamp<std::int64_t>(tile / (cut.items * 32), 1, kMaxWarps));
  if (tuning.warps != 0) cut.warps = tuning.warps;
  cut.tile = std::int64_t{32} * cut.items * cut.warps;
  return cut;
}

// Columns side by side. The tile depends on the length only; the columns of a block change no result.
Cut cut_columns(const AssociativeProblem& problem, const AssociativeTuning& tuning) {
  constexpr std::int64_t kStretches = associative::kMaxStretches;
  const bool walk = problem.length <= kLongestSingleBlock;
  int many = is_wide(problem) ? 8 : 16;
  if (!walk && is_wide(problem) && is_recurrence(problem)) many = 4;  // so that two blocks fit on an SM
  if (tuning.items != 0) many = tuning.items;
  std::int64_t tile = problem.block_size != 0 ? problem.block_size : power_of_two_from(problem.length);
  tile = std::clamp<std::int64_t>(tile, 4 * kMinStretches, many * kStretches);
  Cut cut{static_cast<int>(std::clamp<std::int64_t>(tile / kMinStretches, 4, std::min(many, 8))), 0, 0, walk,
          tile};
  if (tile > cut.items * kStretches || tuning.items != 0) cut.items = many;
  cut.lanes = problem.outer * problem.inner <= kNarrow ? kNarrowLanes : kLanes;
  cut.warps = static_cast<int>(tile / cut.items * cut.lanes / 32);
  if (tuning.warps != 0) {
    cut.warps = tuning.warps;
    cut.tile = std::int64_t{cut.items} * cut.warps * 32 / cut.lanes;
  }
  return cut;
}

}  // namespace

AssociativePlan plan_associative(const AssociativeProblem& problem, const AssociativeTuning& tuning,
                                 bool gradient) {
  const bool rows = problem.inner == 1;
  const Cut cut = rows ? cut_rows(problem, tuning) : cut_columns(problem, tuning);
  AssociativePlan plan;
  plan.spec = associative_kernel_spec({problem.op, problem.dtype, problem.compensated, cut.items, cut.lanes,
                                       cut.walk, problem.initial != nullptr, gradient});
  associative::Arguments& arguments = plan.arguments;
  arguments = {};
  arguments.length = problem.length;
  arguments.inner = problem.inner;
  arguments.columns = problem.outer * problem.inner;
  arguments.tile = cut.tile;
  arguments.tiles = divide_up(problem.length, arguments.tile);
  arguments.warps = cut.warps;
  arguments.first_direction = problem.direction == core::Direction::reverse ? 1 : 0;

  const std::int64_t groups = rows ? arguments.columns : divide_up(arguments.columns, cut.lanes);
  const std::int64_t blocks_of_group = cut.walk ? 1 : arguments.tiles;
  const std::int64_t directions = problem.direction == core::Direction::both ? 2 : 1;
  if (groups > kMostGridBlocks / blocks_of_group) {
    core::fail(core::ErrorKind::limit_exceeded, "x", "x needs ", groups, " times ", blocks_of_group,
               " blocks on the device; the limit is ", kMostGridBlocks);
  }
  plan.grid = {static_cast<unsigned>(groups * blocks_of_group), static_cast<unsigned>(directions), 1};
  // A row's block has one more warp for the hand-over, unless one warp holds the entire row.
  const bool hand_over_warp = rows && (cut.warps > 1 || arguments.tiles > 1);
  plan.block = {32, static_cast<unsigned>(cut.warps + (hand_over_warp ? 1 : 0)), 1};
  if (arguments.tiles > 1 && !cut.walk) {
    const std::int64_t windows = divide_up(arguments.tiles, associative::kWindow);
    const std::int64_t words =
        arguments.tiles * associative::kSummaryWords + windows * associative::kStateWords;
    plan.exchange_bytes = static_cast<std::size_t>(arguments.columns * directions * words * 4);
  }
  return plan;
}

}  // namespace exphil::cuda
