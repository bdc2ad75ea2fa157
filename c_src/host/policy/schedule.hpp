// In which pieces a block of a network runs on the CPU, found once from its phases. Immutable; safe to share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/policy/network.hpp"
#include "host/policy/phases.hpp"

namespace exphil::host {

// Places of phases in their block.
using PhaseList = std::vector<std::size_t>;

// A phase, and what its pieces are: panels of its outputs, or rows. Small, because the steps of a small
// policy and its weights fill a core's first cache.
struct Step {
  RunPhase run = nullptr;
  std::uint32_t phase = 0;
  bool by_rows = false;
  bool begins_walk = false;  // it runs the Walk of this phase; a piece is an agent
  std::int32_t panels = 0;   // of the outputs
  std::int32_t grain = 1;    // panels or rows in a piece
};

inline bool operator==(const Step& p, const Step& q) {
  return p.phase == q.phase;
}

// Of passes with several frames of an agent: what runs frame by frame, from a recall on, to the last cell
// that owns what is recalled.
struct Walk {
  std::vector<Step> steps;
  // Whether it can be split by panels too: where its recalls are complete, every panel needs nothing that
  // another one writes.
  bool by_panels = false;
};

// What a team computes between two barriers. The steps follow one another in each piece, so that a piece
// needs nothing that another one writes; where there are several, they have equal pieces.
struct Region {
  std::vector<Step> own;  // what each lane computes for itself, all rows of it, before its first piece
  std::vector<Step> steps;
};

struct Schedule {
  std::vector<Step> alone;  // for one lane: every phase in its order
  std::vector<Region> regions;
  std::vector<Step> own;  // of all regions
  std::vector<Walk> walks;
  const Walk& walk_of(const Step& first) const {
    return *std::find_if(walks.begin(), walks.end(),
                         [&](const Walk& walk) { return walk.steps.front() == first; });
  }
};

// What a pass has: few rows, with one frame of each agent; many rows; several frames of an agent.
enum class PassKind { few_rows, many_rows, sequences };

// phases: those of the block that run, in their order; wanted: the vectors that are read after the block.
Schedule schedule_of(const core::Network& network, const core::Block& block, const PhaseList& phases,
                     const std::vector<core::VectorId>& wanted, PassKind kind);

}  // namespace exphil::host
