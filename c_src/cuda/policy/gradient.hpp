// The gradient of a policy over whole sequences on a CUDA device, beside the resident policy: its weights as
// the checkpoint has them, and the kernels of kernels/policy/*gradient*. Used by cuda/policy/policy.cpp. See
// core/policy/gradient.hpp.
//
// Any thread, several at once: every call has a stream and memory of its own. The same call gives the same
// bits in every run; the gradients of frames, the outputs and the states of a sequence also in any batch.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "core/policy/gradient.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/gradient_kernels.hpp"
#include "cuda/policy/gradient_memory.hpp"
#include "cuda/policy/gradient_values.hpp"

namespace exphil::cuda {

// Sequences are taken together up to this many frames; a longer one alone. Memory: the activations of all
// layers, 15 KB a frame and layer at d_inner 512.
inline constexpr std::int64_t kGradientRows = 4096;

class PolicyGradient {
 public:
  // Uploads the weights and compiles the kernels. The context is current.
  PolicyGradient(std::shared_ptr<Context> context, std::shared_ptr<const core::PolicyWeights> weights);

  std::size_t resident_bytes() const { return values_.bytes(); }
  // As host::policy_grad: without d_outs the forward pass alone. The context is current. Throws
  // out_of_memory, limit_exceeded, device_lost.
  void run(const core::PolicySequences& sequences, const float* d_outs,
           const core::PolicyGradOutputs& outputs) const;

  // For a benchmark: sequences of this shape, and the kernels of both passes on memory that holds their
  // inputs.
  GradientShape shape(const core::PolicySequences& sequences, bool gradient, bool keeps_state,
                      bool by_state = false) const;
  void enqueue(CUstream stream, GradientMemory& memory, CUdeviceptr gradient, bool adds, bool outs,
               bool frames) const;
  const core::PolicyConfig& config() const { return weights_->config; }
  std::size_t gradient_bytes() const { return values_.bytes(); }

 private:
  class Group;
  void copy_out(CUdeviceptr gradient, core::PolicyValues<float>* to) const;

  std::shared_ptr<Context> context_;
  const std::shared_ptr<const core::PolicyWeights> weights_;
  const GradientValues values_;
  const GradientKernels kernels_;
  DeviceBuffer on_device_;  // the weights
};

// The gradient of a resident policy, made by the first call that needs it.
class LazyPolicyGradient {
 public:
  // The context is current. `weights` are the same in every call.
  const PolicyGradient& get(const std::shared_ptr<Context>& context,
                            const std::shared_ptr<const core::PolicyWeights>& weights);
  std::size_t resident_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::unique_ptr<const PolicyGradient> made_;
};

}  // namespace exphil::cuda
