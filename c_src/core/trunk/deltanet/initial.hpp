// Fresh weights of a gated DeltaNet. Used in core/trunk/deltanet only; pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/trunk/initial.hpp"

namespace exphil::core::deltanet {

inline constexpr const char* kName = "gated_deltanet";
inline constexpr std::int64_t kDefaultHeads = 4, kDefaultTaps = 4;  // Edifice's
inline constexpr std::int64_t kMaxTaps = 16;

// As Axon and Edifice begin: kernels glorot uniform, of the convolution too, biases 0, norms 1. Sizes of its
// own: num_heads, which divides d_model, and d_conv. There is an input projection where d_input is not
// d_model. The outputs are one linear map, `head`.
std::vector<InitialTensor> initial_weights(const std::string& trunk, SizeReader sizes,
                                           const Initializer& draw);

}  // namespace exphil::core::deltanet
