// The network of a Mamba-2 policy of given sizes. Used in core/trunk/mamba2 only; pure functions.
#pragma once

#include <cstdint>

#include "core/trunk/mamba2/settings.hpp"
#include "core/trunk/mixer_network.hpp"

namespace exphil::core::mamba2 {

inline constexpr std::int64_t kMaxTaps = 16;

struct Sizes {
  MixerEnds ends;
  std::int64_t heads = 0, d_inner = 0, d_ssm = 0, d_state = 0, d_conv = 0;
  std::int64_t mlp = 0;       // channels that are gated alone: d_inner - d_ssm
  std::int64_t channels = 0;  // of the convolution
  std::int64_t skips = 0;     // values of D
  bool in_bias = false, out_bias = false, conv_bias = false, norm = false;
};

MixerDescription describe(const Sizes& sizes, const Settings& settings);

}  // namespace exphil::core::mamba2
