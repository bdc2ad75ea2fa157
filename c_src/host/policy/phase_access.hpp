// What a phase's kernel on the CPU reads and writes: whole vectors, or of each vector only the panels that it
// computes. host/policy/schedule.cpp finds regions with it. A new kind of phase is added here and in
// phases.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/network.hpp"

namespace exphil::host {

struct PhaseAccess {
  std::vector<core::Span> whole, panels;  // inputs
  core::Span out;                         // by panels
};

// Throws internal where the kernel cannot read the phase's vectors as they are.
PhaseAccess access_of(const core::Network& network, const core::Phase& phase);

// Floats from one row of each vector to the next: padded, but what a mean writes lies close together, as a
// scan reads it, and frames are the caller's.
std::vector<std::int64_t> row_steps(const core::Network& network);

// The panels that a phase is split by: those of its outputs; of a recurrence over heads, of its values.
std::int64_t panels_of(const core::Phase& phase);

// Whether a phase takes so little time that each lane may compute it for itself: a norm, a recall or the
// coefficients of a rule for few rows, a mean.
bool is_small(const core::Phase& phase, bool many_rows);

// Whether the rows of a phase are split rather than its outputs: those of a norm, a mean and the
// coefficients of a rule, many rows of a narrow product, and those of a gate of vectors that are cut beside
// their panels.
bool splits_rows(const core::Network& network, const core::Phase& phase, bool many_rows);

// The parts of a norm as its kernel takes them: 0 where it takes its input as a whole.
std::int64_t norm_parts(const core::Norm& norm);

}  // namespace exphil::host
