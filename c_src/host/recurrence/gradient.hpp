// The gradient of one sequence of a selective scan, for a part of its channels: h is computed again from
// checkpoints, one tile of steps after the other, from the last to the first. Callers: scan/gradient.cpp.
// Plain data, no ownership.
#pragma once

#include <cstdint>

#include "host/recurrence/sequence.hpp"
#include "host/recurrence/tile.hpp"

namespace exphil::host {

// A part is this many blocks of channels (64 channels): a thread takes one at a time, and the sums of dB and
// dC over its channels are added up lane by lane before anything is written. Parts are cut the same way
// whatever the thread count and the batch, so the sums have one order.
inline constexpr std::int64_t kPartBlocks = 4, kPartChannels = kPartBlocks * kPanel;

inline constexpr std::int64_t parts_of(std::int64_t dim) {
  return (dim + kPartChannels - 1) / kPartChannels;
}

// The sums of one part and one group of B (or C) have a place of their own: number part + group. Both grow
// with the channel, so no two pairs that occur have the same number.
inline constexpr std::int64_t places(std::int64_t dim, std::int64_t groups) {
  return parts_of(dim) + groups - 1;
}

// Where the gradient of B or C goes.
struct ProjectionGradient {
  // {places, tiles, state, parts, kTile}: the sum over the channels of one part and group, at step
  // tile kTile + s of the order of the scan. Zeros at the beginning. Constant: null.
  float* sums = nullptr;
  float* panels = nullptr;  // constant: {blocks, state, parts, kPanel}, the sum over time; else null
};

struct GradientSequence {
  ScanSequence scan;  // its operands; no results but `checkpoints`, which run_gradient_part sets itself
  Rows dy;
  const float* d_final_state = nullptr;  // {dim, state, parts} or null
  const float* states = nullptr;  // of scan_with_states: after step t at states + t states_step; or null
  std::int64_t states_step = 0;

  void *dx = nullptr, *ddt = nullptr, *dz = nullptr;  // rows of rule.dtype as far apart as dy's; or null
  float* da = nullptr;                                // {blocks, a_block}
  float *dd = nullptr, *d_bias = nullptr;             // {padded(dim)}
  float* d_initial = nullptr;                         // {dim, state, parts}, or null
  ProjectionGradient b, c;
};

std::int64_t gradient_scratch_floats(const ScanRule& rule, std::int64_t seq);

// Writes everything of part `part` of the channels. Parts are independent. Any thread, with its own scratch:
// gradient_scratch_floats(rule, seq) floats, 64-byte aligned.
void gradient_part(const ScanRule& rule, const GradientSequence& sequence, std::int64_t part, float* scratch);

}  // namespace exphil::host
