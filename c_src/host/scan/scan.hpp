// The selective scan of core/scan/problem.hpp on the CPU: packs A, cuts (batch, channel blocks) over the
// library's threads. Callers: the host backend, tests, benchmarks. Any thread, any number at once.
//
// Every result is the same bits whatever the thread count, the batch around a sequence and the cut. A forced
// `chunked` algorithm runs sequentially in time too: with one lane for each channel there is nothing to win
// from a second pass over time, and both settings give the same bits.
#pragma once

#include "core/scan/problem.hpp"

namespace exphil::host {

void selective_scan(const core::ScanProblem& problem, const core::ScanOutputs& outputs);

}  // namespace exphil::host
