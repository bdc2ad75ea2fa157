// The network of a policy as the GPU's kernels run it (kernels/policy/network.cuh), and the shapes that
// policy_step is compiled for. Immutable values; safe anywhere.
#pragma once

#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "cuda/policy/lower.hpp"
#include "kernels/policy/team_layout.cuh"

namespace exphil::cuda {

struct PolicyDims {
  // Throws what lower() throws.
  explicit PolicyDims(const core::PolicyConfig& config);

  core::PolicyConfig config;
  Lowered lowered;
  const policy::Network& network() const { return lowered.network; }
  int frame_size() const { return network().size(network().frame); }  // with padding
  int outputs() const { return network().values(network().outs); }
  // Copies frames {count, d_input} to rows of frame_size(), padded with zeros.
  void pad_frames(const float* frames, std::int64_t count, float* to) const;
  // The same for many frames, by stream_rows(). Returns whether they are finite.
  bool stream_frames(const float* frames, std::int64_t count, float* to) const;
  // Whether inputs are decayed in a sequence of so many frames.
  bool decays(std::int64_t frames) const;
  // Whether those of a carried state are.
  bool carried_decays() const;
  // The defines for kernels/policy/dims.cuh.
  std::vector<std::string> defines() const;
};

// One launch shape of policy_step.
struct TeamShape {
  int team = 1, threads = 256, agents = 1;
  bool cluster = false;
  policy::Staging staged = policy::kStageNothing;
  bool counts = true;  // blocks of a cluster count what they receive; false: they meet at its barriers
  bool armed = false;  // launched before its observation is there; agents = 1

  std::vector<std::string> defines(const PolicyDims& dims) const;
  policy::TeamLayout weights(const PolicyDims& dims) const;  // of a block
  policy::ActivationLayout activations(const PolicyDims& dims) const;
  long long shared_bytes(const PolicyDims& dims) const;  // of a block
};

}  // namespace exphil::cuda
