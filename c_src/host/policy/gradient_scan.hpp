// What a selective scan passes back. Used by host/policy/gradient_backward.cpp; one call at a time.
#pragma once

#include "host/policy/gradient_forward.hpp"
#include "host/policy/gradient_rows.hpp"
#include "host/policy/gradient_sums.hpp"

namespace exphil::host {

// A scan of the block, as the forward pass left it, and where its gradients go.
struct RecordedScan {
  const PackedPhase& packed;
  const core::Network& network;
  const core::PolicyConfig& config;
  const SequenceGroup& group;
  const MatrixRows* at;          // of each vector
  const MatrixRows checkpoints;  // GradientRecord::before
  BlockSums& sums;
  const PhaseSums& phase;
  BackRows& rows;
  float* d_states = nullptr;  // as in core::PolicyGradOutputs
};

void phase_back(const core::SelectiveScan& phase, const RecordedScan& recorded);

}  // namespace exphil::host
