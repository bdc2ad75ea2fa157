// A policy's weights in training: they and AdamW's means are resident on a backend, and a step there is one
// call: forward pass, loss, gradient, clipping and AdamW. The numbers come to the caller only when it asks.
// host/policy/training.hpp and cuda/policy/training.hpp implement it; nif/trainer.cpp calls it.
//
// Any thread; calls run one after another. A step that throws changes nothing: the next values are computed
// beside the present ones, and replace them at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/policy/gradient.hpp"
#include "core/training/adamw.hpp"
#include "core/training/loss.hpp"

namespace exphil::core {

// What outputs are compared with: cross-entropy over groups, or the mean of squares.
struct TrainingLoss {
  bool squares = false;
  std::vector<LossGroup> groups;
};

// A tensor of the checkpoint, all of which are trained.
struct TrainedTensor {
  std::string name;
  bool decays = false;  // its weights decay
};

// Where training begins; empty means: zeros.
struct TrainingStart {
  std::int64_t steps = 0;
  PolicyValues<float> m, v;
};

struct TrainingBatch {
  PolicySequences sequences;
  const std::int32_t* choices = nullptr;  // {batch, seq, columns}, of cross-entropy
  const float* values = nullptr;          // {batch, seq, d_output}, of squares
  const std::int32_t* mask = nullptr;     // {batch, seq}, or null
  float* states = nullptr;                // {batch, state_floats}: after the last frames; null: not wanted
  std::int64_t rows() const { return sequences.batch * sequences.seq; }
};

struct TrainingRule {
  AdamW adamw;  // weight_decay: of tensors that decay; step: the number of this one
  std::optional<double> clip_norm;
};

// The loss before the step, and the norm of the gradient before clipping.
struct TrainingStep {
  double loss = 0, norm = 0;
};

// A run of values of one weight that decay alike.
struct TrainedRun {
  WeightId weight = kNone;
  std::size_t first = 0, count = 0;
  bool decays = false;
};
// Those that the tensors fill, in the order of the weights, none longer or shorter than it could be. Throws
// internal where two tensors fill one place or a tensor is not one of the policy's.
std::vector<TrainedRun> trained_runs(const PolicyWeights& weights, const std::vector<TrainedTensor>& tensors);

class PolicyTraining {
 public:
  // Throws invalid_argument for groups that the outputs do not have.
  PolicyTraining(std::shared_ptr<const PolicyWeights> weights, TrainingLoss loss,
                 const std::vector<TrainedTensor>& tensors, std::int64_t steps);
  virtual ~PolicyTraining() = default;

  // What the policy is. Its values are those that training began with.
  const PolicyWeights& policy() const { return *weights_; }
  const TrainingLoss& loss() const { return loss_; }
  // The sequences are checked by the caller. Throws invalid_argument as loss.hpp does and where numbers are
  // not finite, mismatch where the step is not the next one, and what the backend throws.
  TrainingStep step(const TrainingBatch& batch, const TrainingRule& rule);
  // The values after the last step, of the parameters at least; null: not wanted. Returns how many steps.
  std::int64_t read(PolicyValues<float>* weights, PolicyValues<float>* m, PolicyValues<float>* v);
  // PolicyGradient::run() of the weights as they are.
  void grad(const PolicySequences& sequences, const float* d_outs, const PolicyGradOutputs& outputs);

 protected:
  struct Outcome {
    TrainingStep step;   // where a number of it is not finite, the rest does not count
    bool finite = true;  // whether the next values are
  };
  const std::vector<TrainedRun>& runs() const { return runs_; }
  double gradient_scale(const TrainingRule& rule, double norm) const;

 private:
  // The next values. One at a time, and so the rest.
  virtual Outcome compute(const TrainingBatch& batch, const TrainingRule& rule) = 0;
  virtual void commit() noexcept = 0;  // they are the values now
  virtual void read_values(bool next, PolicyValues<float>* weights, PolicyValues<float>* m,
                           PolicyValues<float>* v) = 0;
  virtual void run_grad(const PolicySequences& sequences, const float* d_outs,
                        const PolicyGradOutputs& outputs) = 0;
  void require_finite(const Outcome& outcome, const TrainingRule& rule);
  [[noreturn]] void refuse_values(const TrainingRule& rule);

  const std::shared_ptr<const PolicyWeights> weights_;
  const TrainingLoss loss_;
  const std::vector<TrainedRun> runs_;
  std::mutex mutex_;
  std::int64_t steps_;
};

}  // namespace exphil::core
