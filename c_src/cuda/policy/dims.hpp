// The sizes of a policy on the GPU (kernels/policy/layout.cuh) from a checkpoint's config, and the shapes
// that policy_step is compiled for. Immutable values; safe anywhere.
#pragma once

#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "core/trunk/mamba1/mamba1.hpp"
#include "kernels/policy/layout.cuh"

namespace exphil::cuda {

struct PolicyDims : policy::Dims {
  // Throws limit_exceeded, and unsupported where the policy is of a trunk that these kernels do not know.
  explicit PolicyDims(const core::PolicyConfig& config);

  core::PolicyConfig config;
  core::mamba1::Form mamba;
  // Whether inputs are decayed in a sequence of so many frames.
  bool decays(std::int64_t frames) const;
  // The defines for kernels/policy/dims.cuh.
  std::vector<std::string> defines() const;
};

// One launch shape of policy_step.
struct TeamShape {
  int team = 1, threads = 256, agents = 1;
  bool cluster = false, staged = false;
  bool armed = false;  // launched before its observation is there; agents = 1

  std::vector<std::string> defines(const PolicyDims& dims) const;
  policy::ActivationLayout activations(const PolicyDims& dims) const;
  long long shared_bytes(const PolicyDims& dims) const;  // of a block
};

}  // namespace exphil::cuda
