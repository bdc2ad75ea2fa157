// The associative scans of core/associative/problem.hpp on the CPU. Callers: the host backend, the AR-SSM
// layer, tests, benchmarks. Any thread, any number at once.
//
// Sequences go to the library's threads, time is walked in order, so :block_size changes nothing here, and
// the result is the same bits whatever the thread count and the tensor around a sequence.
#pragma once

#include "core/associative/problem.hpp"

namespace exphil::host {

void associative_scan(const core::AssociativeProblem& problem, const core::AssociativeOutputs& outputs);

}  // namespace exphil::host
