// How the CPU runs a network, found once when a policy is loaded: the schedules of its blocks, and where the
// rows of every vector lie. Immutable; safe to share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/policy/network.hpp"
#include "host/policy/schedule.hpp"
#include "host/policy/state_layout.hpp"

namespace exphil::host {

// Rows of one pass: enough to reuse every weight from L1, few enough that the activations stay
// in L2.
inline constexpr std::int64_t kPassRows = 64;

// Up to this many rows each lane normalises for itself, which takes less time than a barrier.
inline constexpr std::int64_t kFewRows = 4;

// A block, or those of its phases that one kind of pass runs.
struct BlockPlan {
  Schedule few, many;  // for up to kFewRows rows, and for more
  Schedule sequences;  // of several frames of an agent, where the block walks them
  bool walks = false;
  const Schedule& of(std::int64_t rows, std::int64_t frames) const {
    return walks && frames > 1 ? sequences : rows <= kFewRows ? few : many;
  }
  std::int64_t most_regions(bool of_sequences) const;
};

// Where rows of a vector lie, in floats.
struct VectorPlace {
  std::int64_t step = 0;              // from one row to the next
  std::int64_t at = 0;                // in the memory that the lanes of a pass share
  std::int64_t own_at = core::kNone;  // in that of each lane, if a lane may compute it for itself
};

class ForwardPlan {
 public:
  explicit ForwardPlan(const core::Network& network);

  std::vector<VectorPlace> places;  // by VectorId
  std::int64_t step(core::VectorId id) const { return places[static_cast<std::size_t>(id)].step; }
  std::int64_t shared_floats = 0, own_floats = 0;   // kPassRows rows of every vector; of each lane
  std::int64_t scan_floats = 0;                     // scratch of each lane
  std::int64_t step_regions = 0, most_regions = 0;  // of a pass with one frame of each agent; of any pass

  BlockPlan input, layer, output;
  // The first layer in two parts: what a ring keeps of each frame, and what follows.
  BlockPlan frame_part, window_part;
  std::vector<core::VectorId> kept;  // rows of a ring; `hidden` first
  bool window_reads_hidden = false;  // what follows, or the next layer as it is in the ring
  bool keeps(core::VectorId id) const { return std::find(kept.begin(), kept.end(), id) != kept.end(); }
  std::vector<bool> feeds_state;  // of the last layer's phases
  const StateLayout states;

 private:
  void plan_blocks(const core::Network& network);
  std::int64_t regions(const core::Network& network, bool of_sequences) const;
  void place_vectors(const core::Network& network);
};

}  // namespace exphil::host
