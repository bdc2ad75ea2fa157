// The scratch of scan_channels for one block of channels, and the current tile of time steps. Used by the
// scan's per-target code only.
#pragma once

#include <cstdint>

#include "host/recurrence/sequence.hpp"

namespace exphil::host {

// Steps of a tile. The cache misses of 16 rows of two or three tensors are as many as a core keeps in flight;
// their panels take 4 KB of a 48 KB L1.
inline constexpr std::int64_t kTile = 16;

struct ScanTile {
  std::int64_t first = 0, steps = 0;    // time
  std::int64_t ahead = kTile;           // from a step to that of the next tile, whose rows are prefetched
  std::int64_t channel = 0, lanes = 0;  // channels [channel, channel + lanes), lanes <= kPanel
  bool keep_x = false;                  // prepare stores x too
  bool within_range = false;            // all |A dt'| of the tile are below the sequence's a_bounds limit
  float *dt, *dt_x, *x, *y;             // {kTile, kPanel}
  const float *bias, *d;                // {kPanel}: the caller's, or padded copies for a narrower block
  float *bias_copy, *d_copy;
  float *b, *c;   // {kTile, state, parts, kPanel}: rows that are not read in place
  float* h;       // {state, parts, kPanel}
  float* system;  // full matrix only: {state, state + 1, parts, kPanel}
};

// Divides scratch, of scan_scratch_floats(rule) floats, into a tile's arrays.
inline void carve(const ScanRule& rule, float* scratch, ScanTile* tile) {
  const auto take = [&scratch](std::int64_t floats) {
    float* taken = scratch;
    scratch += floats;
    return taken;
  };
  tile->dt = take(kTile * kPanel);
  tile->dt_x = take(kTile * kPanel);
  tile->x = take(kTile * kPanel);
  tile->y = take(kTile * kPanel);
  tile->bias_copy = take(kPanel);
  tile->d_copy = take(kPanel);
  tile->h = take(rule.state_block());
  tile->b = take(kTile * rule.state_block());
  tile->c = take(kTile * rule.state_block());
  tile->system = take(rule.full_matrix ? rule.a_block() + rule.state_block() : 0);
}

inline constexpr std::int64_t tiles(std::int64_t seq) {
  return (seq + kTile - 1) / kTile;
}

inline std::int64_t scan_scratch_floats(const ScanRule& rule) {
  return (4 * kTile + 2) * kPanel + (2 * kTile + 1) * rule.state_block() +
         (rule.full_matrix ? rule.a_block() + rule.state_block() : 0);
}

}  // namespace exphil::host
