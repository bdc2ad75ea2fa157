// Finds the regions of a block. Used by host/policy/plan.cpp when a policy is loaded.
#pragma once

#include <vector>

#include "host/policy/phase_access.hpp"
#include "host/policy/plan.hpp"

namespace exphil::host {

struct ScheduleRequest {
  const core::Network& network;
  const core::Block& block;
  const PhaseList& phases;                    // those that run, in their order
  const std::vector<VectorPlace>& places;     // whose memory a vector has
  const std::vector<core::VectorId>& wanted;  // vectors that are read after the block
};

Schedule schedule_of(const ScheduleRequest& request, bool many_rows);

// The last phase of a block that may read a vector, where each lane may compute small phases as late as their
// results are needed; -1 where none does.
int last_reader(const core::Block& block, core::VectorId vector);

}  // namespace exphil::host
