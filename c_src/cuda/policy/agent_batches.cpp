#include "cuda/policy/agent_batches.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "core/finite.hpp"
#include "cuda/policy/frame_rows.hpp"

namespace exphil::cuda {
namespace {

// More agents than this in one call do not hurry, and are cut into more slices than there are lanes.
constexpr std::int64_t kFrames = 1024;

void require_finite(const BatchRows& rows, std::int64_t count, std::int64_t d_input) {
  if (rows.rows == nullptr) return core::require_finite(rows.obs, count * d_input, d_input, "obs");
  for (std::int64_t i = 0; i < count; ++i) {
    core::require_finite(rows.obs + rows.rows[i] * d_input, d_input, d_input, "obs");
  }
}

}  // namespace

AgentBatches::AgentBatches(std::shared_ptr<Context> context, const PolicyDims& dims,
                           const RowKernels& kernels, const PolicyTuning& tuning, StateArena& arena,
                           OrderedStream& stream, SlicePipeline& others, std::int64_t few)
    : context_(std::move(context)),
      dims_(dims),
      kernels_(kernels),
      tuning_(tuning),
      arena_(arena),
      others_(others),
      few_(few),
      stream_(stream) {
  make_pipeline();
}

void AgentBatches::make_pipeline() {
  auto made =
      std::make_unique<SlicePipeline>(context_, dims_, kernels_, tuning_, stream_, StreamPriority::high);
  frames_[made_.load()] = std::move(made);
  made_.fetch_add(1);  // other calls see it from here on
}

std::pair<SlicePipeline&, SlicePipeline::Turn> AgentBatches::pipeline_for(std::int64_t count) {
  const std::size_t made = made_.load();
  for (std::size_t i = 0; i < made; ++i) {
    if (i > 0 && frames_[i]->reserved() < count) continue;  // it would allocate
    if (SlicePipeline::Turn turn = frames_[i]->try_turn()) return {*frames_[i], std::move(turn)};
  }
  return {*frames_[0], frames_[0]->turn()};
}

bool AgentBatches::hurry(std::int64_t count) const {
  return count > few_ && count <= kFrames;
}

// The states are looked up as the slices need them, and change while the device computes. They write other
// slots until the end, so that nothing has changed where they were the wrong ones.
bool AgentBatches::advance(const core::GroupStates& states, std::int64_t count, const BatchRows& rows,
                           const std::function<bool()>& is_right) {
  std::optional<NextStates> next;
  auto* const group = static_cast<CudaGroupMemory*>(states.kept);
  bool right = true;
  SliceHooks hooks;
  if (is_right) hooks.is_right = [&] { return right = is_right(); };
  hooks.find = [&] {
    next.emplace(arena_, states.from, states.to, count, NextStates::Lookup::when_reached);
    const bool known = group != nullptr && group->has(states.from, count);
    if (group != nullptr) group->begin();
    return BatchStates{next->places(), group, known};
  };
  hooks.before = [&](const Slice& slice) {
    next->reach(static_cast<std::size_t>(slice.states - next->places() + slice.job.rows));
  };
  hooks.meanwhile = [&] { next->assign(); };
  const auto compute = [&](SlicePipeline& pipeline, SlicePipeline::Turn turn) {
    return pipeline.batch(count, rows, group != nullptr, hooks, std::move(turn));
  };
  const bool finite =
      count <= kFrames ? std::apply(compute, pipeline_for(count)) : compute(others_, others_.turn());
  if (!right) return false;
  if (!finite) require_finite(rows, count, dims_.config.d_input);
  next->commit();
  if (group != nullptr) group->commit(next->first_stamp());
  return true;
}

// To look up few sessions takes less time than to wake a thread that copies their frames.
bool AgentBatches::may_guess(std::int64_t count) const {
  const bool enough = copying_helpers(count) > 0 || tuning_.guess > 1;
  return enough && tuning_.guess != 0 && hurry(count);
}

std::unique_ptr<core::GroupMemory> AgentBatches::group_memory(std::int64_t count) const {
  const std::int64_t values = kernels_.values_ahead();
  if (values == 0 || count == 1 || !hurry(count)) return nullptr;
  return std::make_unique<CudaGroupMemory>(context_, count, values, group_bytes_);
}

// 1,024 agents took 217 to 226 us with one, three or seven, and 252 to 282 with none; 256 whose launch waits
// for their frames 60 to 62 with two and 71 to 77 with none (bench/results/gated.md).
int AgentBatches::copying_helpers(std::int64_t count) const {
  constexpr int kHelpers = 2;
  const bool awaited = count > few_ && frames_[0]->is_one_launch(count, true);
  const std::int64_t alone = awaited ? kAwaitedAlone : kFramesAlone;
  return 4 * count * dims_.frame_size() >= alone ? kHelpers : 0;
}

void AgentBatches::reserve(std::int64_t count, int at_once) {
  const auto most = static_cast<std::size_t>(std::min(at_once, tuning_.batches));
  if (made_.load() < most) {
    const std::lock_guard<std::mutex> lock(making_);
    while (made_.load() < most) make_pipeline();
  }
  for (std::size_t i = 0; count > few_ && i < most; ++i) frames_[i]->reserve_batch(std::min(count, kFrames));
  if (count > kFrames) others_.reserve_batch(count);
}

}  // namespace exphil::cuda
