// What the phases of Mamba-3 around its recurrence pass back. Used by host/policy/gradient_backward.cpp; one
// call at a time.
#pragma once

#include "host/policy/gradient_heads.hpp"

namespace exphil::host {

void phase_back(const core::Delay& phase, const RecordedPhase& recorded);
void phase_back(const core::Angle& phase, const RecordedPhase& recorded);
void phase_back(const core::Rotation& phase, const RecordedPhase& recorded);
void phase_back(const core::Trapezoid& phase, const RecordedPhase& recorded);
void phase_back(const core::RankScale& phase, const RecordedPhase& recorded);

}  // namespace exphil::host
