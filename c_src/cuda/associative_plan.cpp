#include "cuda/associative_plan.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "cuda/associative_variants.hpp"

namespace exphil::cuda {

namespace {

using associative::kMaxWarps;
using core::AssociativeOp;
using core::AssociativeProblem;
using core::Dtype;

// No Summary is larger (decay, input and limit of a complex recurrence), nor any State (a compensated complex
// sum).
constexpr std::int64_t kSummaryBytes = 24, kStateBytes = 16;
constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;

std::int64_t divide_up(std::int64_t size, std::int64_t by) {
  return (size + by - 1) / by;
}

std::size_t aligned(std::int64_t bytes) {
  return static_cast<std::size_t>(divide_up(bytes, 256) * 256);
}

std::int64_t power_of_two_from(std::int64_t size) {
  std::int64_t power = 1;
  while (power < size) power *= 2;
  return power;
}

// Elements of time that a thread holds in registers, for long sequences: as many as fit beside the rest.
int long_items(const AssociativeProblem& problem, bool rows) {
  const bool wide = problem.dtype == Dtype::c64 || problem.dtype == Dtype::s64;
  const bool recurrence = problem.op == AssociativeOp::linear_recurrence;
  if (rows) return wide || recurrence ? 8 : 16;
  if (recurrence) return wide ? 8 : 16;
  if (wide || problem.op == AssociativeOp::cummax || problem.op == AssociativeOp::cummin) return 16;
  return 32;
}

int short_items(bool rows) {
  return rows ? 4 : 8;
}

// The tile that a sequence of this length is cut into, unless the caller forces one. Small tiles spread a
// short problem over more of the chip; large ones need fewer hand-overs.
std::int64_t default_tile(std::int64_t length, bool rows, std::int64_t largest) {
  const std::int64_t shorter = rows ? 1024 : 64;
  const std::int64_t threshold = rows ? 1024 : 2048;
  return length <= threshold ? std::min(shorter, power_of_two_from(length)) : largest;
}

struct Cut {
  int items, warps;
};

Cut choose_cut(const AssociativeProblem& problem, bool rows, const AssociativeTuning& tuning) {
  const std::int64_t unit = rows ? 32 : 1;  // threads of a warp that follow each other in time
  const int many = long_items(problem, rows), few = short_items(rows);
  const std::int64_t tile = problem.block_size != 0
                                ? problem.block_size
                                : default_tile(problem.length, rows, many * unit * kMaxWarps);
  Cut cut{tile <= few * unit * kMaxWarps ? few : many, 0};
  if (tuning.items != 0) cut.items = tuning.items;
  cut.warps = static_cast<int>(std::clamp<std::int64_t>(tile / (cut.items * unit), 1, kMaxWarps));
  if (tuning.warps != 0) cut.warps = tuning.warps;
  return cut;
}

}  // namespace

AssociativePlan plan_associative(const AssociativeProblem& problem, const AssociativeTuning& tuning) {
  const bool rows = problem.inner == 1;
  const Cut cut = choose_cut(problem, rows, tuning);
  AssociativePlan plan;
  plan.spec = associative_kernel_spec({problem.op, problem.dtype, problem.compensated, cut.items, rows});
  associative::Arguments& arguments = plan.arguments;
  arguments = {};
  arguments.length = problem.length;
  arguments.inner = problem.inner;
  arguments.columns = problem.outer * problem.inner;
  arguments.tile = std::int64_t{cut.items} * cut.warps * (rows ? 32 : 1);
  arguments.tiles = divide_up(problem.length, arguments.tile);
  arguments.warps = cut.warps;
  arguments.first_direction = problem.direction == core::ScanDirection::reverse ? 1 : 0;

  const std::int64_t groups =
      rows ? arguments.columns : divide_up(arguments.columns, associative::kColumnLanes);
  const std::int64_t directions = problem.direction == core::ScanDirection::both ? 2 : 1;
  if (groups > kMostBlocks / arguments.tiles) {
    core::fail(core::ErrorKind::limit_exceeded, "x", "x needs ", groups, " times ", arguments.tiles,
               " blocks on the device; the limit is ", kMostBlocks);
  }
  plan.grid = {static_cast<unsigned>(groups * arguments.tiles), static_cast<unsigned>(directions), 1};
  const bool one_warp = cut.warps == 1 && arguments.tiles == 1;
  plan.block = {32, static_cast<unsigned>(cut.warps + (one_warp ? 0 : 1)), 1};
  if (arguments.tiles > 1) {
    const std::int64_t window = rows ? associative::kRowWindow : associative::kColumnWindow;
    const std::int64_t lanes = rows ? associative::kRowLanes : associative::kColumnLanes;
    const std::int64_t windows = divide_up(arguments.tiles, window), chains = groups * directions;
    plan.flag_bytes = aligned(chains * (arguments.tiles + windows) * 4);
    plan.summary_bytes = aligned(chains * arguments.tiles * lanes * kSummaryBytes);
    plan.carry_bytes = aligned(chains * windows * lanes * kStateBytes);
  }
  return plan;
}

}  // namespace exphil::cuda
