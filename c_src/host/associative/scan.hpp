// The associative scans of core/associative/problem.hpp on the CPU. Callers: the host backend, the AR-SSM
// layer, tests, benchmarks. Any thread, concurrently.
//
// Sequences are distributed over the library's threads and each is scanned in order, so :block_size has no
// effect here. The result has the same bits for any thread count and whatever else is in the tensor.
#pragma once

#include "core/associative/problem.hpp"

namespace exphil::host {

void associative_scan(const core::AssociativeProblem& problem, const core::AssociativeOutputs& outputs);

}  // namespace exphil::host
