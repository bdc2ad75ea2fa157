// How policy/gradient_heads.cu divides a head's matrix among blocks and threads. Compiled by the host
// compiler and by NVRTC.
#pragma once

#include "kernels/policy/network.cuh"

namespace exphil {
namespace policy {

// The rules in the place of RANKS.
constexpr int kLinearRule = 0, kDeltaRule = -1;

// A block has rows of one head's matrix, and walks through time: neighbouring lanes have the keys of a row, a
// thread so many rows, kHeadWalkThreads / lanes apart.
constexpr int kHeadWalkThreads = 256, kHeadSegment = 16;
struct HeadTile {
  Lanes lanes;
  int each, rows;  // rows of a thread, of a block
  constexpr explicit HeadTile(int keys)
      : lanes(keys), each(most(1, least(4, 16 / lanes.each))), rows(kHeadWalkThreads / lanes.lanes * each) {}
  constexpr int tiles(int channels) const { return divide_up(channels, rows); }
  constexpr int floats() const { return each * lanes.each; }  // of a thread's states
};

}  // namespace policy
}  // namespace exphil
