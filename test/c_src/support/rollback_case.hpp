// Sessions that roll back, against replays on sessions that do not: the same operations for every backend.
#pragma once

#include <cstdint>
#include <memory>

#include "core/session/session.hpp"
#include "support/melee.hpp"

namespace exphil::test {

// Plays a trace whose frames appear again by rolling back and resimulating alone, and checks every output
// against the recorded ones.
void check_recorded_rollbacks(std::shared_ptr<core::Policy> policy, const Match& trace);

// Resimulates more frames than a GPU has in flight at once, and compares with single steps.
void check_long_resimulation(std::shared_ptr<core::Policy> policy);

}  // namespace exphil::test
