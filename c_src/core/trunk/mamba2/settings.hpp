// What the shapes of a Mamba-2 policy's tensors cannot say (core/trunk/stated.hpp). Used in core/trunk/mamba2
// only; pure functions.
#pragma once

#include <cstdint>
#include <limits>

#include "core/trunk/loading.hpp"

namespace exphil::core::mamba2 {

struct Settings {
  std::int64_t groups = 1;  // of B and C
  bool norm_before_gate = false;
  float dt_lowest = 0, dt_highest = std::numeric_limits<float>::infinity();
  float norm_epsilon = 1e-5f, mixer_norm_epsilon = 1e-5f;
  const char* from = "metadata";  // the last of the sources that something was taken from
};

// Throws invalid_checkpoint where a source has a value of another kind, or says that the policy has what is
// not supported; invalid_argument for an option that is not this trunk's or contradicts the file.
Settings settings_of(const Checkpoint& file, const PolicyLoadOptions& options);

}  // namespace exphil::core::mamba2
