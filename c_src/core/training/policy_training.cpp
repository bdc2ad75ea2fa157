#include "core/training/policy_training.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace exphil::core {

namespace {

const float* not_finite(const PolicyValues<float>& values, const PolicyParameter& p) {
  const std::vector<float>& of = values_of(values, p.weight);
  const float* found = nullptr;
  each_run(p, [&](std::size_t, std::size_t place, std::size_t size) {
    for (std::size_t i = place; i < place + size; ++i) {
      if (!std::isfinite(of[i])) found = &of[i];
    }
  });
  return found;
}

}  // namespace

std::vector<TrainedRun> trained_runs(const PolicyWeights& weights,
                                     const std::vector<TrainedTensor>& tensors) {
  std::vector<TrainedRun> all;
  for (const TrainedTensor& tensor : tensors) {
    const auto found = std::find_if(weights.parameters.begin(), weights.parameters.end(),
                                    [&](const PolicyParameter& p) { return p.name == tensor.name; });
    if (found == weights.parameters.end()) {
      fail(ErrorKind::internal, "", "the policy has no tensor ", quote(tensor.name), " to train");
    }
    each_run(*found, [&](std::size_t, std::size_t place, std::size_t size) {
      all.push_back({found->weight, place, size, tensor.decays});
    });
  }
  std::sort(all.begin(), all.end(), [](const TrainedRun& p, const TrainedRun& q) {
    return p.weight != q.weight ? p.weight < q.weight : p.first < q.first;
  });
  std::vector<TrainedRun> runs;
  for (const TrainedRun& run : all) {
    const bool same = !runs.empty() && runs.back().weight == run.weight;
    const std::size_t end = same ? runs.back().first + runs.back().count : 0;
    if (same && run.first < end) fail(ErrorKind::internal, "", "two tensors of the policy fill one place");
    if (same && run.first == end && run.decays == runs.back().decays) {
      runs.back().count += run.count;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

PolicyTraining::PolicyTraining(std::shared_ptr<const PolicyWeights> weights, TrainingLoss loss,
                               const std::vector<TrainedTensor>& tensors, std::int64_t steps)
    : weights_(std::move(weights)),
      loss_(std::move(loss)),
      runs_(trained_runs(*weights_, tensors)),
      steps_(steps) {
  if (!loss_.squares) check_groups(loss_.groups, weights_->config.d_output);
}

double PolicyTraining::gradient_scale(const TrainingRule& rule, double norm) const {
  return rule.clip_norm && norm > *rule.clip_norm ? *rule.clip_norm / norm : 1.0;
}

TrainingStep PolicyTraining::step(const TrainingBatch& batch, const TrainingRule& rule) {
  if (!loss_.squares) check_targets(loss_.groups, batch.rows(), batch.choices, batch.mask);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (rule.adamw.step != steps_ + 1) {
    fail(ErrorKind::mismatch, "trainer", "the trainer has taken ", rule.adamw.step - 1,
         " steps, and its policy ", steps_, ": go on with the trainer that the last step returned");
  }
  const Outcome outcome = compute(batch, rule);
  require_finite(outcome, rule);
  commit();
  ++steps_;
  return outcome.step;
}

void PolicyTraining::require_finite(const Outcome& outcome, const TrainingRule& rule) {
  if (!std::isfinite(outcome.step.loss)) {
    fail(ErrorKind::invalid_argument, "outs", "outs must give a finite loss, got ", outcome.step.loss);
  }
  if (!std::isfinite(outcome.step.norm)) {
    fail(ErrorKind::invalid_argument, "gradients", "gradients must be finite: their norm is ",
         outcome.step.norm);
  }
  if (!outcome.finite) refuse_values(rule);
}

// What is too large for f32 is the square of a gradient, or else the way that the learning rate gives.
void PolicyTraining::refuse_values(const TrainingRule& rule) {
  PolicyValues<float> weights = zeros_of<float>(policy().network()), v = weights;
  read_values(true, &weights, nullptr, &v);
  for (const PolicyParameter& p : policy().parameters) {
    if (not_finite(v, p) != nullptr) {
      fail(ErrorKind::invalid_argument, "gradients",
           "gradients must have squares that f32 holds: that of tensor ", quote(p.name), " has not");
    }
  }
  for (const PolicyParameter& p : policy().parameters) {
    if (not_finite(weights, p) != nullptr) {
      fail(ErrorKind::invalid_argument, ":learning_rate", ":learning_rate is too large: a step with ",
           rule.adamw.learning_rate, " leaves f32 in tensor ", quote(p.name));
    }
  }
  fail(ErrorKind::invalid_argument, ":learning_rate", ":learning_rate is too large: a step with ",
       rule.adamw.learning_rate, " leaves f32 in A = -exp(A_log)");
}

std::int64_t PolicyTraining::read(PolicyValues<float>* weights, PolicyValues<float>* m,
                                  PolicyValues<float>* v) {
  const std::lock_guard<std::mutex> lock(mutex_);
  read_values(false, weights, m, v);
  return steps_;
}

void PolicyTraining::grad(const PolicySequences& sequences, const float* d_outs,
                          const PolicyGradOutputs& outputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  run_grad(sequences, d_outs, outputs);
}

}  // namespace exphil::core
