// Steps of training of a policy, and what every backend's must give.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/training/policy_training.hpp"
#include "support/policy_grad_case.hpp"

namespace exphil::test {

using MakeTraining = std::function<std::unique_ptr<core::PolicyTraining>(
    std::shared_ptr<const core::PolicyWeights>, core::TrainingLoss, const std::vector<core::TrainedTensor>&,
    core::TrainingStart)>;

// A batch with a mask, targets that are left out, and a rule that clips.
struct TrainingCase {
  TrainingCase(std::shared_ptr<const core::PolicyWeights> policy, bool squares, std::int64_t batch,
               std::int64_t seq, bool with_state);

  core::TrainingBatch given();
  core::TrainingRule rule(std::int64_t step) const;
  std::unique_ptr<core::PolicyTraining> make(const MakeTraining& train,
                                             core::TrainingStart start = {}) const {
    return train(weights, loss, tensors, std::move(start));
  }

  std::shared_ptr<const core::PolicyWeights> weights;
  core::TrainingLoss loss;
  std::vector<core::TrainedTensor> tensors;
  PolicyGradCase sequences;
  std::vector<std::int32_t> choices, mask;
  std::vector<float> values, states;
};

struct TrainingState {
  std::int64_t steps = 0;
  core::PolicyValues<float> weights, m, v;
};
TrainingState state_of(core::PolicyTraining& training);
bool same_bits(const TrainingState& p, const TrainingState& q);

// Three steps of the trainings of both backends agree, and each has its own bits again from the state after
// the first step.
void check_training(const MakeTraining& train, const MakeTraining& expected, TrainingCase c);
// A step that cannot be made changes nothing and says why.
void check_refused_training(const MakeTraining& train, TrainingCase c);

}  // namespace exphil::test
