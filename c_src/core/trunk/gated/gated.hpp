// GRU, LSTM, minGRU and minLSTM as trunks: policies with the names of Edifice and ExPhil, whose recurrences
// are gated cells (kernels/common/cells.cuh).
//
//   gru, lstm           norm; product W x + b; recall of h; product U h + b; cell; its result is the hidden
//                       state. ExPhil's first norm is that of the frame.
//   min_gru, min_lstm   norm; product to the gates; cell; residual
//
//   state parts: h {1, units}; of LSTM h_c {2, units}, h and c
//
// Two layouts of GRU and LSTM are read: Axon's (gru_1.input_kernel.wir ...), where a GRU's n has a bias of
// its own for U h, and states begin with what Axon draws from a stored key; and that of Edifice's fused
// kernels (gru_1_input_proj, gru_1_fused_scan), without that bias and from zeros.
#pragma once

#include "core/trunk/loading.hpp"

namespace exphil::core::gated {

std::vector<Trunk> trunks();  // one for each cell

}  // namespace exphil::core::gated
