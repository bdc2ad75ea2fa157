// Training of a policy on the CPU: core/training/policy_training.hpp over policy_grad().
#pragma once

#include "core/training/policy_training.hpp"

namespace exphil::host {

std::unique_ptr<core::PolicyTraining> make_training(std::shared_ptr<const core::PolicyWeights> weights,
                                                    core::TrainingLoss loss,
                                                    const std::vector<core::TrainedTensor>& tensors,
                                                    core::TrainingStart start);

}  // namespace exphil::host
