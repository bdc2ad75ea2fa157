#include "cuda/policy/training_kernels.hpp"

#include <iterator>

#include "core/tensor.hpp"
#include "cuda/divide_up.hpp"
#include "cuda/jit/launch.hpp"

namespace exphil::cuda {
namespace {

constexpr const char* kEntries[] = {"policy_training_loss", "policy_training_squares",
                                    "policy_training_result", "policy_training_adamw",
                                    "policy_training_derive"};

KernelSpec spec_of(const char* entry) {
  return {"policy/training.cu", entry, {}};
}

Dim3 grid_of(std::int64_t blocks) {
  return {grid_blocks(blocks, "frames", "a step of training")};
}

}  // namespace

std::vector<KernelSpec> training_kernels() {
  std::vector<KernelSpec> all;
  for (const char* entry : kEntries) all.push_back(spec_of(entry));
  return all;
}

std::int64_t squares_blocks(std::int64_t count) {
  return divide_up(count, policy::kSquaresOfBlock);
}

TrainingKernels::TrainingKernels(Context& context) : context_(context) {
  CUfunction* const functions[] = {&loss_, &squares_, &result_, &adamw_, &derive_};
  for (std::size_t i = 0; i < std::size(kEntries); ++i)
    *functions[i] = context.kernels().get(spec_of(kEntries[i]));
}

void TrainingKernels::loss(CUstream stream, const policy::TrainingLossArguments& a) const {
  const std::int64_t warps = core::checked_multiply(a.rows, a.group_count, "frames");
  launch(context_, loss_, grid_of(divide_up(warps, policy::kTrainingThreads / 32)),
         {policy::kTrainingThreads}, 0, stream, a);
}

void TrainingKernels::sums(CUstream stream, const policy::TrainingSumsArguments& a) const {
  launch(context_, squares_, grid_of(squares_blocks(a.count)), {policy::kTrainingThreads}, 0, stream, a);
  launch(context_, result_, {1}, {policy::kTrainingThreads}, 0, stream, a);
}

void TrainingKernels::adamw(CUstream stream, const policy::AdamWArguments& a) const {
  launch(context_, adamw_, grid_of(divide_up(a.count, policy::kTrainingThreads)), {policy::kTrainingThreads},
         0, stream, a);
}

void TrainingKernels::derive(CUstream stream, const policy::DeriveArguments& a, std::size_t weights) const {
  if (weights == 0) return;
  launch(context_, derive_, {32, static_cast<unsigned>(weights)}, {policy::kTrainingThreads}, 0, stream, a);
}

}  // namespace exphil::cuda
