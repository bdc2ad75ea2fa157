// core::PrefillAhead on this machine: jobs of the background threads, beside frames and large calls. Used by
// policy.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/policy/policy.hpp"

namespace exphil::host {

// Advances a new agent's state by so many frames, in one thread.
using AdvanceNew = std::function<void(core::State&, const float* frames, std::int64_t seq)>;

// The policy outlives the object. begin() throws WouldWait where threads wait for a core, and where what was
// dropped still runs: a job beside them would end no earlier than its frame comes, and take their time.
std::unique_ptr<core::PrefillAhead> make_prefill_ahead(core::Policy& policy, AdvanceNew advance);

}  // namespace exphil::host
