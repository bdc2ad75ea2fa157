// Training of a policy on a CUDA device: core/training/policy_training.hpp with all of it in device memory,
// in the layout of cuda/policy/gradient_values.hpp. A step is a chain of launches on one stream.
#pragma once

#include <memory>
#include <vector>

#include "core/training/policy_training.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

std::unique_ptr<core::PolicyTraining> make_training(std::shared_ptr<Context> context,
                                                    std::shared_ptr<const core::PolicyWeights> weights,
                                                    core::TrainingLoss loss,
                                                    const std::vector<core::TrainedTensor>& tensors,
                                                    core::TrainingStart start);

}  // namespace exphil::cuda
