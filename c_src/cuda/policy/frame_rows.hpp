// What is copied for a batch: its frames into page-locked memory, and its answers out of it. Used by
// cuda/policy/slice_lanes.cpp and frame_lane.cpp, in several threads at once.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/policy/dims.hpp"
#include "cuda/policy/slice_lanes.hpp"

namespace exphil::cuda {

// Frames and answers of fewer bytes are copied by the calling thread alone, because to wake others takes as
// long; of more by all, so much at a time. A launch that waits for its frames begins with the first of them,
// and more threads are worth it sooner.
inline constexpr std::int64_t kFramesAlone = 512 * 1024, kAwaitedAlone = 192 * 1024,
                              kAnswersAlone = 256 * 1024, kCopiedAtOnce = 32 * 1024;

// Powers of two, so that calls of different sizes soon need no more growth.
inline std::int64_t capacity_for(std::int64_t rows) {
  std::int64_t capacity = 64;
  while (capacity < rows) capacity *= 2;
  return capacity;
}

// Frames [first, first + count) of the slice, to `to` on. Returns whether they are finite.
inline bool stream_frames(const PolicyDims& dims, const Slice& slice, std::int64_t first, std::int64_t count,
                          char* to) {
  const std::int64_t d_input = dims.config.d_input, row_bytes = 4 * std::int64_t{dims.frame_size()};
  if (slice.rows == nullptr && slice.fresh == nullptr) {
    return dims.stream_frames(slice.obs + first * d_input, count, reinterpret_cast<float*>(to));
  }
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const float* const frame =
        slice.fresh != nullptr ? slice.fresh[first + i] : slice.obs + slice.rows[first + i] * d_input;
    finite &= dims.stream_frames(frame, 1, reinterpret_cast<float*>(to + i * row_bytes));
  }
  return finite;
}

// Answers [first, first + count) of the slice, which are among those from `from` on.
inline void hand_out_answers(const PolicyDims& dims, const Slice& slice, const float* from,
                             std::int64_t first, std::int64_t count) {
  const std::int64_t each = dims.outputs();
  const auto rows = [&](std::int64_t to, std::int64_t at, std::int64_t rows_of) {
    std::memcpy(slice.out + to * each, from + at * each, static_cast<std::size_t>(rows_of * each) * 4);
  };
  if (slice.rows == nullptr) return rows(first, first, count);
  for (std::int64_t i = first; i < first + count; ++i) rows(slice.rows[i], i, 1);
}

}  // namespace exphil::cuda
