// The gradient of a policy over whole sequences on a CUDA device, beside a resident policy or without one:
// its weights as the checkpoint has them, and the kernels of kernels/policy/*gradient*. Used by the backend
// and by cuda/policy/training.cpp. See core/policy/gradient.hpp.
//
// Any thread, several at once: every call has a stream and memory of its own. The same call gives the same
// bits in every run; the gradients of frames, the outputs and the states of a sequence also in any batch.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/policy/gradient.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/gradient_kernels.hpp"
#include "cuda/policy/gradient_memory.hpp"
#include "cuda/policy/gradient_values.hpp"

namespace exphil::cuda {

// Sequences are taken together up to this many frames; a longer one alone. Memory: the activations of all
// layers, 15 KB a frame and layer at d_inner 512.
inline constexpr std::int64_t kGradientRows = 4096;

// What a step of training adds to a gradient (cuda/policy/training.cpp).
struct TrainingPass {
  const void *targets = nullptr,
             *mask = nullptr;  // {rows, target_columns}, {rows} of the call; four bytes each
  std::int64_t target_columns = 0;
  CUdeviceptr gradient = 0;  // where it goes
  // Between the passes of rows from `first` on: writes the gradient of their outs.
  std::function<void(CUstream stream, const GradientMemory& memory, std::int64_t first)> loss;
  // After the gradient of all rows.
  std::function<void(CUstream stream)> update;
};

class GradientStreams;

class PolicyGradient {
 public:
  // Uploads the weights and compiles the kernels. The context is current.
  PolicyGradient(std::shared_ptr<Context> context, std::shared_ptr<const core::PolicyWeights> weights);

  std::size_t resident_bytes() const { return values_.bytes(); }
  // As host::policy_grad: without d_outs the forward pass alone. The context is current. Throws
  // out_of_memory, limit_exceeded, device_lost.
  void run(const core::PolicySequences& sequences, const float* d_outs,
           const core::PolicyGradOutputs& outputs) const {
    run(address(), sequences, d_outs, outputs);
  }
  // The same of other weights, at an address of the values' layout.
  void run(CUdeviceptr weights, const core::PolicySequences& sequences, const float* d_outs,
           const core::PolicyGradOutputs& outputs) const;
  // Returns when `update` is done. Its weights' gradient stays on the device: outputs.weights is not used.
  void train(CUdeviceptr weights, const core::PolicySequences& sequences,
             const core::PolicyGradOutputs& outputs, const TrainingPass& training) const;

  // Values of the gradient's layout, in host memory.
  void copy_out(CUdeviceptr values, core::PolicyValues<float>* to) const;
  const GradientValues& values() const { return values_; }
  // The weights that it was made with, and the states of a new agent.
  CUdeviceptr address() const { return on_device_.address(); }

  // For a benchmark: sequences of this shape, and the kernels of both passes on memory that holds their
  // inputs.
  GradientShape shape(const core::PolicySequences& sequences, bool gradient, bool keeps_state,
                      bool by_state = false) const;
  void enqueue(GradientStreams& streams, GradientMemory& memory, CUdeviceptr gradient, bool adds, bool outs,
               bool frames) const;
  const core::PolicyConfig& config() const { return weights_->config; }
  std::size_t gradient_bytes() const { return values_.bytes(); }

 private:
  class Group;
  struct Call;
  void run_groups(const Call& call) const;

  std::shared_ptr<Context> context_;
  const std::shared_ptr<const core::PolicyWeights> weights_;
  const GradientValues values_;
  const GradientKernels kernels_;
  DeviceBuffer on_device_;  // the weights
};

// As an object of a backend. Throws out_of_memory, device_lost.
std::unique_ptr<core::PolicyGradient> make_gradient(std::shared_ptr<Context> context,
                                                    std::shared_ptr<const core::PolicyWeights> weights);

}  // namespace exphil::cuda
