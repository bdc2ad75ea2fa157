// The operator of Mamba-2 (core/ssd/call.hpp) and its gradient on the CPU. Callers: the host backend, the XLA
// handlers, tests. Any thread, concurrently.
//
// Heads, and where they are wide their channels too, are distributed over the library's threads, and each
// walks through time in order. The results have the same bits for any number of threads, those of a sequence
// also in any batch. The gradients of a, d and dt_bias are sums over the batch in its order.
#pragma once

#include "core/ssd/call.hpp"

namespace exphil::host {

// The results that the call has.
void ssd_scan(const core::SsdCall& call);
void ssd_scan_grad(const core::SsdCall& call);

}  // namespace exphil::host
