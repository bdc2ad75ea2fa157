// The gradient of the selective scan (core/scan/gradient.hpp) on the CPU. Callers: the host backend, tests,
// benchmarks. Any thread, concurrently.
//
// States are recomputed from one checkpoint every 16 steps. Every result has the same bits for any thread
// count; those of x, dt, b, c, z and initial_state also whatever else is in the batch. Memory beside the
// results: the sums of dB and dC over 64 channels at a time (with one group 1/32 of all states), dA and
// constant dB and dC of each sequence, and the checkpoints of 64 channels for each thread.
#pragma once

#include "core/scan/gradient.hpp"

namespace exphil::host {

void selective_scan_grad(const core::ScanGradProblem& problem, const core::ScanGradOutputs& outputs);

}  // namespace exphil::host
