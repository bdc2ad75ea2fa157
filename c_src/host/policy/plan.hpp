// How the CPU runs a network, found once from its phases: which of them share a region, and where the rows of
// every vector lie. A region is what a team computes between two barriers. Its phases follow one another in
// each piece of it, so a piece must need nothing that another piece of the region writes.
//
// Immutable; safe to share.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/network.hpp"
#include "host/policy/state_layout.hpp"

namespace exphil::host {

// Rows of one pass: enough to reuse every weight from L1, few enough that the activations stay
// in L2.
inline constexpr std::int64_t kPassRows = 64;

// Up to this many rows each lane normalises for itself, which takes less time than a barrier.
inline constexpr std::int64_t kFewRows = 4;

// Places of phases in their block.
using PhaseList = std::vector<std::size_t>;

struct Region {
  PhaseList own;     // what each lane computes for itself before its first piece
  PhaseList phases;  // what each piece computes
  bool by_rows = false;
  std::int64_t panels = 0;  // of the outputs of each phase
  std::int64_t grain = 1;   // panels or rows in a piece
};

struct Schedule {
  std::vector<Region> regions;
  PhaseList own;  // of all regions
};

// A block, or those of its phases that one kind of pass runs.
struct BlockPlan {
  Schedule few, many;  // for up to kFewRows rows, and for more
  const Schedule& of(std::int64_t rows) const { return rows <= kFewRows ? few : many; }
  std::int64_t most_regions() const;
};

// Where rows of a vector lie, in floats.
struct VectorPlace {
  std::int64_t step = 0;                // from one row to the next
  core::VectorId memory = core::kNone;  // the vector whose memory it has: its own, or an input's
  std::int64_t at = 0;                  // in the memory that the lanes of a pass share
  std::int64_t own_at = core::kNone;    // in that of each lane, if a lane may compute it for itself
};

class ForwardPlan {
 public:
  explicit ForwardPlan(const core::Network& network);

  const VectorPlace& place(core::VectorId id) const { return places_[static_cast<std::size_t>(id)]; }
  std::size_t vectors() const { return places_.size(); }
  std::int64_t shared_floats = 0, own_floats = 0;  // kPassRows rows of every vector; of each lane
  std::int64_t scan_floats = 0;                    // scratch of each lane
  std::int64_t most_regions = 0;                   // of a pass

  BlockPlan input, layer, output;
  // The first layer in two parts: what a ring keeps of each frame, and what follows.
  BlockPlan frame_part, window_part;
  std::vector<core::VectorId> kept;  // rows of a ring; `hidden` first
  bool keeps(core::VectorId id) const;
  std::vector<bool> feeds_state;  // of the last layer's phases
  const StateLayout states;

 private:
  void place_vectors(const core::Network& network);
  void share_memory(const core::Network& network, const core::Block& block);

  std::vector<VectorPlace> places_;
};

}  // namespace exphil::host
