// The backward half of host/policy/gradient.cpp: from the gradient of the outputs to those of the weights and
// of the frames. One call at a time.
#pragma once

#include "host/policy/gradient_forward.hpp"
#include "host/policy/gradient_rows.hpp"
#include "host/policy/gradient_sums.hpp"

namespace exphil::host {

struct BackMemory {
  GradientSums& sums;
  BackRows& rows;
};

// Of the sequences of a group, after their forward pass. d_outs and outputs: of all sequences of the call.
void pass_back(const PackedWeights& weights, const SequenceGroup& group, const GradientRecord& record,
               const BackMemory& memory, const float* d_outs, const core::PolicyGradOutputs& outputs);

}  // namespace exphil::host
