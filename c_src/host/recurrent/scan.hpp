// The fused recurrent operators (core/recurrent/call.hpp) and their gradients on the CPU. Callers: the host
// backend, the XLA handlers, tests. Any thread, concurrently.
//
// Sequences, and for the cells without a product of the state their channels too, are distributed over the
// library's threads, and each is walked in order. The results have the same bits for any number of threads,
// those of a sequence also in any batch. grad_r is a sum over the batch in its order.
#pragma once

#include "core/recurrent/call.hpp"

namespace exphil::host {

// The results that the call has.
void recurrent_scan(const core::RecurrentCall& call);
void recurrent_scan_grad(const core::RecurrentCall& call);

}  // namespace exphil::host
