// The network of a Mamba-3 policy of given sizes. Used in core/trunk/mamba3 only; pure functions.
#pragma once

#include <cstdint>

#include "core/trunk/mixer_network.hpp"

namespace exphil::core::mamba3 {

struct Sizes {
  MixerEnds ends;
  std::int64_t heads = 0, headdim = 0, d_state = 0, groups = 1, ranks = 1;
  std::int64_t angles = 0;  // rotated pairs
  bool mimo = false, norm = false;
  float floor = 1e-4f, mixer_norm_epsilon = 1e-5f;
  std::int64_t d_inner() const { return heads * headdim; }
  std::int64_t projected() const { return ranks * groups * d_state; }  // rows of B, and of C
};

// Of the first int(d_state * fraction) elements of B and C, less one where that is odd.
std::int64_t angles_of(std::int64_t d_state, double rope_fraction);

MixerDescription describe(const Sizes& sizes);

}  // namespace exphil::core::mamba3
