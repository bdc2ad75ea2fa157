// The scratch of gradient_part for one part of the channels. Used by the gradient's code only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "host/recurrence/gradient.hpp"

namespace exphil::host {

struct PartScratch {
  float* tile;              // as for scan_channels: scan_scratch_floats
  float* checkpoints;       // {kPartBlocks, tiles, state, parts, kPanel}, unless the caller has them
  float* g;                 // the gradient of h: {kPartBlocks, state, parts, kPanel}
  float *dy, *ddt, *ddt_x;  // {kTile, kPanel}
  float *db, *dc;           // {state, parts, kTile, kPanel}
  float* history;           // full matrix: {kTile + 1, state, kPanel}
};

// Divides `base` into the arrays; returns the number
// of floats. With a null base only the size is valid.
inline std::int64_t carve_part(const ScanRule& rule, std::int64_t seq, bool has_checkpoints, float* base,
                               PartScratch* scratch) {
  std::int64_t taken = 0;
  const auto take = [&](std::int64_t floats) {
    float* from = base == nullptr ? nullptr : base + taken;
    taken += (floats + kPanel - 1) / kPanel * kPanel;
    return from;
  };
  const std::int64_t blocks = std::min(kPartBlocks, panels(rule.dim));
  scratch->tile = take(scan_scratch_floats(rule));
  scratch->checkpoints = take(has_checkpoints ? 0 : blocks * tiles(seq) * rule.state_block());
  scratch->g = take(blocks * rule.state_block());
  scratch->dy = take(kTile * kPanel);
  scratch->ddt = take(kTile * kPanel);
  scratch->ddt_x = take(kTile * kPanel);
  scratch->db = take(kTile * rule.state_block());
  scratch->dc = take(kTile * rule.state_block());
  scratch->history = take(rule.full_matrix ? (kTile + 1) * rule.state_block() : 0);
  return taken;
}

}  // namespace exphil::host
