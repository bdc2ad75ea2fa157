// Fresh weights of GRU, LSTM, minGRU and minLSTM. Used in core/trunk/gated only; pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/trunk/initial.hpp"

namespace exphil::core::gated {

// As Axon and Edifice begin: kernels glorot uniform, the recurrent ones too, biases 0, norms 1. GRU and LSTM
// have Axon's layout, with a random key for each layer, from which its states begin; as in Axon the h and the
// c of an LSTM have the same one. minGRU and minLSTM have an input projection where d_input is not d_model.
// The outputs are one linear map, `head`. No sizes of their own. `trunk` is an architecture of
// description.hpp.
std::vector<InitialTensor> initial_weights(const std::string& trunk, SizeReader sizes,
                                           const Initializer& draw);

}  // namespace exphil::core::gated
