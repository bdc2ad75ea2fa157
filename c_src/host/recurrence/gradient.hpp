// The gradient of one sequence of a selective scan, for a part of its channels: h is recomputed from
// checkpoints, tile by tile, from the last to the first. Callers: scan/gradient.cpp. Plain data, no
// ownership.
#pragma once

#include <cstdint>

#include "host/recurrence/sequence.hpp"
#include "host/recurrence/tile.hpp"

namespace exphil::host {

// A part is this many blocks of channels (64 channels). A thread processes one part at a time, and adds up dB
// and dC over its channels lane by lane before it writes them. The parts do not depend on the thread count or
// the batch, so the order of the sums is fixed.
inline constexpr std::int64_t kPartBlocks = 4, kPartChannels = kPartBlocks * kPanel;

inline constexpr std::int64_t parts_of(std::int64_t dim) {
  return (dim + kPartChannels - 1) / kPartChannels;
}

// The sums of one part and one group of B (or C) have their own index, part + group. Both grow with the
// channel, so every combination that occurs has a distinct index.
inline constexpr std::int64_t sum_slots(std::int64_t dim, std::int64_t groups) {
  return parts_of(dim) + groups - 1;
}

// Where the gradient of B or C goes.
struct ProjectionGradient {
  // {sum_slots, tiles, state, parts, kTile}: the sum over the channels of one part and group, at step
  // tile kTile + s in scan order. Zero on entry. Constant: null.
  float* sums = nullptr;
  float* panels = nullptr;  // constant: {blocks, state, parts, kPanel}, the sum over time; else null
};

struct GradientSequence {
  ScanSequence scan;  // operands; no results
  Rows dy;
  const float* d_final_state = nullptr;  // {dim, state, parts} or null
  // What is known of h; null where it is computed again. Before each tile of all blocks of channels, as
  // scan_channels() leaves it (ScanSequence::checkpoints), or ...
  const float* checkpoints = nullptr;
  const float* states = nullptr;  // ... of scan_with_states: after step t at states + t states_step; or null
  std::int64_t states_step = 0;

  void *dx = nullptr, *ddt = nullptr, *dz = nullptr;  // rows of rule.dtype as far apart as dy's; or null
  // With scan.input_dt: what each channel passes to its step's input_dt, f32 rows as dx; ddt is then that
  // through Abar alone.
  float* d_input_dt = nullptr;
  float* da = nullptr;                     // {blocks, a_block}
  float *dd = nullptr, *d_bias = nullptr;  // {padded(dim)}
  float* d_initial = nullptr;              // {dim, state, parts}, or null
  ProjectionGradient b, c;
};

// Of a call without checkpoints of the caller's, or of one with them.
std::int64_t gradient_scratch_floats(const ScanRule& rule, std::int64_t seq, bool has_checkpoints);

// Computes every gradient of part `part` of the channels. Parts are independent. Any thread, with its own
// scratch: gradient_scratch_floats() floats, 64-byte aligned.
void gradient_part(const ScanRule& rule, const GradientSequence& sequence, std::int64_t part, float* scratch);

}  // namespace exphil::host
