// The selective scan of core/scan/call.hpp on the CPU: packs A and
// distributes (sequence, block of channels) over the library's threads.
// Callers: the host backend, tests, benchmarks. Any thread, concurrently.
//
// Every result has the same bits whatever the thread count, the rest of the batch and the split. The
// algorithm `chunked` is sequential here too, with the same bits: with one lane per channel a second pass
// over time gains nothing.
#pragma once

#include "core/scan/call.hpp"

namespace exphil::host {

// Host memory. Results whose addresses are null are not computed.
void selective_scan(const core::ScanCall& call);

}  // namespace exphil::host
