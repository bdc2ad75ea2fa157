// policy_step in a shape that this device can run: chooses it, uploads the weights for that shape, and
// launches; likewise policy_step_armed. Used by cuda/policy/fused.cpp, once for a single agent and once for a
// few; launches are made under the stream's lock.
#pragma once

#include <cuda.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/policy/config.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/tuning.hpp"
#include "kernels/policy/arguments.cuh"

namespace exphil::cuda {

// Packed weights by team size, shared by the runners of one policy. Not thread-safe: used while loading.
class TeamWeights {
 public:
  TeamWeights(Context& context, const core::PolicyWeights& weights, const PolicyDims& dims)
      : context_(context), weights_(weights), dims_(dims) {}
  std::shared_ptr<DeviceBuffer> get(int team);

 private:
  Context& context_;
  const core::PolicyWeights& weights_;
  const PolicyDims& dims_;
  std::vector<std::pair<int, std::shared_ptr<DeviceBuffer>>> packed_;
};

class TeamRunner {
 public:
  // agents: the agents of a team at a time. Throws unsupported where no shape runs on this device.
  TeamRunner(Context& context, const PolicyDims& dims, const PolicyTuning& tuning, TeamWeights& weights,
             int agents);

  const TeamShape& shape() const { return shape_; }
  int most_teams() const { return most_teams_; }  // concurrently
  std::size_t resident_bytes() const { return weights_->bytes(); }

  // Fills in weights, board and barrier. inline_obs: {d_input}, read before this
  // returns; may be null where arguments.obs is given.
  void launch(CUstream stream, policy::StepArguments arguments, const float* inline_obs) const;

  // Compiles policy_step_armed in the same shape. Once, before the first launch_armed(). For one agent.
  void prepare_armed();
  void launch_armed(CUstream stream, policy::StepArguments arguments, policy::ArmedArguments armed) const;

 private:
  void launch(CUfunction function, CUstream stream, policy::StepArguments& arguments, void* second) const;
  CUresult launch_early(CUfunction function, CUstream stream, unsigned blocks, void** parameters) const;
  bool try_shape(const TeamShape& shape);

  Context& context_;
  const PolicyDims& dims_;
  TeamShape shape_;
  CUfunction function_ = nullptr, armed_ = nullptr;
  unsigned shared_bytes_ = 0, armed_shared_bytes_ = 0;
  int most_teams_ = 1;
  std::shared_ptr<DeviceBuffer> weights_;
  DeviceBuffer board_, barrier_;
  std::vector<float> no_obs_;
};

// The shapes worth trying on a device, best first.
std::vector<TeamShape> team_candidates(const DeviceProperties& device, const PolicyDims& dims,
                                       const PolicyTuning& tuning, int agents);
// The shapes of a launch ahead of its frame, best first, from that of a step.
std::vector<TeamShape> armed_shapes(TeamShape shape, const PolicyDims& dims, const DeviceProperties& device);
KernelSpec team_kernel(const PolicyDims& dims, const TeamShape& shape);

}  // namespace exphil::cuda
