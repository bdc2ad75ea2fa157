// Random operations of many sessions on several threads, against replays on one thread: the same for every
// backend.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/session/session.hpp"

namespace exphil::test {

// These weights in f32, bf16, f16 and int8.
std::vector<std::shared_ptr<const core::PolicyWeights>> in_every_precision(
    const core::PolicyWeights& weights);

// `operations` random ones of step, step_batch, roll_back, resimulate, prefill, window, snapshot, restore,
// export and import over 32 sessions of these policies, on four threads. The sessions are carried or have
// windows, with and without a history (of 1 to 9 frames). Every answer, and many states, must have the bits
// of sessions that only step, on one thread. Two of three sessions gather their frames. The same seed gives
// each thread the same operations. armed: of the sessions with a carried state two of three have
// SessionOptions::armed.
void check_random_sessions(const std::vector<std::shared_ptr<core::Policy>>& policies,
                           std::int64_t operations, std::uint64_t seed, bool armed = false);

// EXPHIL_SESSION_OPERATIONS, or `otherwise`.
std::int64_t session_operations(std::int64_t otherwise);

}  // namespace exphil::test
