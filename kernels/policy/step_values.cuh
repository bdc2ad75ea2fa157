// Where a Step keeps the values that phases write, and the answers.
#pragma once

#include "kernels/policy/step.cuh"
#include "kernels/policy/tagged.cuh"

namespace exphil {
namespace policy {

// Keeps a value of this block's channel c where its readers look for it: in this block, or pushed to the
// boards by `sharers` threads that have it, of which this is number `sharer`. Where a mean needs the
// segment's sum, a warp has whole segments.
template <int kVector>
__device__ __forceinline__ void Step::keep(int agent, int c, float value, int sharer, int sharers) const {
  const int channel = rank_ * own_of(kVector) + c;
  if constexpr (kPlan.on_board(kVector)) {
    if (has_channel<kVector>(channel)) {
      board_.push(&act_.vector<kVector>()[agent][channel], value, sharer, sharers);
    }
  } else if (sharer == 0) {
    act_.vector<kVector>()[agent][c] = value;
  }
  if constexpr (kPlan.has_mean[kVector]) {
    const float part = segment_sum<values_of(kVector)>(value, channel);
    if (has_channel<kVector>(channel)) {
      board_.push(&act_.mean_parts<kVector>()[agent][channel / kSegment], part, c % kSegment, kSegment);
    }
  }
}

// How many values of a vector the blocks push; and, after their round, the copy of those.
template <int kVector>
constexpr int Step::pushed_by() {
  return AGENTS * ((kPlan.on_board(kVector) ? size_of(kVector) : 0) +
                   (kPlan.has_mean[kVector] ? segments_of(kVector) : 0));
}
template <int kVector>
__device__ __forceinline__ void Step::copy_pushed() const {
  if constexpr (kPlan.on_board(kVector)) board_.copy(act_.vector<kVector>()[0], AGENTS * size_of(kVector));
  if constexpr (kPlan.has_mean[kVector]) {
    board_.copy(act_.mean_parts<kVector>()[0], AGENTS * segments_of(kVector));
  }
}

// After it, every thread may read what keep() was given.
template <int kVector>
__device__ __forceinline__ void Step::kept() {
  if constexpr (pushed_by<kVector>() > 0) {
    board_.exchange(pushed_by<kVector>());
    copy_pushed<kVector>();
  } else {
    __syncthreads();
  }
}

__device__ __forceinline__ void Step::store(int agent, int output, float value) const {
  const long long index = static_cast<long long>(agent) * kAnswers + output;
  if (answers_.out != nullptr) {
    answers_.out[index] = value;
  } else {
    store_tagged(answers_.tagged + index, answers_.sequence, value);
  }
}

}  // namespace policy
}  // namespace exphil
