// Launches the kernels of a policy's training step: kernels/policy/training.cu. Used by
// cuda/policy/training.cpp. Any thread, with the context current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_spec.hpp"
#include "kernels/policy/training_arguments.cuh"

namespace exphil::cuda {

std::vector<KernelSpec> training_kernels();

// Blocks of policy_training_squares.
std::int64_t squares_blocks(std::int64_t count);

class TrainingKernels {
 public:
  explicit TrainingKernels(Context& context);

  void loss(CUstream stream, const policy::TrainingLossArguments& arguments) const;
  // Leaves the result of the gradient and the losses.
  void sums(CUstream stream, const policy::TrainingSumsArguments& arguments) const;
  void adamw(CUstream stream, const policy::AdamWArguments& arguments) const;
  // Of so many weights.
  void derive(CUstream stream, const policy::DeriveArguments& arguments, std::size_t weights) const;

 private:
  Context& context_;
  CUfunction loss_, squares_, result_, adamw_, derive_;
};

}  // namespace exphil::cuda
