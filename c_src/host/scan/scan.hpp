// The selective scan of core/scan/call.hpp on the CPU: packs A and shares (sequence, block of
// channels) out to the library's threads. Callers: the host backend, tests, benchmarks. Any thread, any
// number at once.
//
// Every result is the same bits whatever the thread count, the batch around a sequence and the cut. A forced
// `chunked` algorithm runs sequentially in time too: with one lane for each channel there is nothing to win
// from a second pass over time, and both settings give the same bits.
#pragma once

#include "core/scan/call.hpp"

namespace exphil::host {

// Host memory. Results whose addresses are null are not computed.
void selective_scan(const core::ScanCall& call);

}  // namespace exphil::host
