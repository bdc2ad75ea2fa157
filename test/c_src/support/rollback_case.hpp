// Sessions that roll back, against replays on sessions that do not: the same operations for every backend.
#pragma once

#include <cstdint>
#include <memory>

#include "core/policy/session.hpp"
#include "support/melee.hpp"

namespace exphil::test {

// `operations` random ones of step, step_batch, rollback, resimulate, prefill, snapshot and restore over 32
// sessions, carried and with windows, of every history from 1 to 9. Checks every output and every state
// against a session that only steps, bit for bit.
void check_random_rollbacks(std::shared_ptr<core::Policy> policy, std::int64_t operations,
                            std::uint64_t seed);

// EXPHIL_ROLLBACK_OPERATIONS, or `otherwise`.
std::int64_t rollback_operations(std::int64_t otherwise);

// Plays a trace whose frames appear again by rolling back and resimulating alone, and checks every output
// against the recorded ones.
void check_recorded_rollbacks(std::shared_ptr<core::Policy> policy, const Match& trace);

// Resimulates more frames than a GPU has in flight at once, and compares with single steps.
void check_long_resimulation(std::shared_ptr<core::Policy> policy);

}  // namespace exphil::test
