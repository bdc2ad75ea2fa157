// Which channels of a divided vector, and which heads, a block of a team has. Constexpr over a value of
// Network, as policy/team_plan.cuh is, which includes it.
#pragma once

#include "kernels/policy/network.cuh"

namespace exphil {
namespace policy {

// Channels of a vector that one block has, in multiples of a segment. The last blocks may have fewer, or
// none: their weights are filled with zeros.
constexpr int own_channels(int size, int team) {
  return divide_up(size / kSegment, team) * kSegment;
}
// What cells read is divided unit by unit.
constexpr bool is_gate(const Network& n, int vector) {
  for (const GatedCell& cell : n.cells) {
    for (int gate = 0; gate < formulas::kMaxGates; ++gate) {
      if (cell.x[gate] == vector || cell.h[gate] == vector) return true;
    }
  }
  return false;
}
// So is what heads read whole, before and behind its convolution.
constexpr bool is_key(const Network& n, int vector) {
  for (const Heads& heads : n.heads) {
    if (heads.trapezoid()) continue;
    const int keys[] = {heads.key, heads.query};
    for (const int key : keys) {
      if (key == kNoVector) continue;
      if (key == vector) return true;
      for (const Convolution& c : n.convolutions) {
        if (c.in == vector && c.out == key) return true;
      }
    }
  }
  return false;
}
// A layer with the delta rule needs sums of no vector that is divided: of each a block has so few channels
// that whole warps have the lanes of their states.
constexpr int kDeltaChannels = 16;  // of a block, where a team has enough of them
constexpr int own_channels(const Network& n, int team, int vector) {
  const int even = divide_up(n.size(vector), team);
  if (n.heads[0].delta()) return round_up(even, 32 / Lanes(keys_of(n, n.heads[0])).lanes);
  return is_gate(n, vector) || is_key(n, vector) ? even : own_channels(n.size(vector), team);
}

// Of heads with rotated keys, which a layer has once: the first one that a block has channels of, and how
// many a block has at the most.
constexpr int first_head(const Network& n, int team, int rank) {
  return head_of(n, n.heads[0], rank * own_channels(n.size(n.heads[0].value), team));
}
constexpr int heads_of_block(const Network& n, int team) {
  if (n.heads[0].value == kNoVector) return 1;
  const int own = own_channels(n.size(n.heads[0].value), team);
  int found = 1;
  for (int rank = 0; rank < team; ++rank) {
    found = most(found, head_of(n, n.heads[0], (rank + 1) * own - 1) - first_head(n, team, rank) + 1);
  }
  return found;
}
// Values that a block has of a vector with as many for each head.
constexpr int values_of_heads(const Network& n, int team, int vector) {
  return n.values(vector) / n.heads[0].heads * heads_of_block(n, team);
}

}  // namespace policy
}  // namespace exphil
