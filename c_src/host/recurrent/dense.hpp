// GRU and LSTM as fused operators on the CPU: see scan.hpp, whose functions call these.
#pragma once

#include "core/recurrent/call.hpp"

namespace exphil::host {

void dense_scan(const core::RecurrentCall& call);
void dense_scan_grad(const core::RecurrentCall& call);

}  // namespace exphil::host
