#include "host/policy/training.hpp"

#include <cmath>
#include <utility>

#include "host/policy/gradient.hpp"

namespace exphil::host {
namespace {

using core::PolicyValues;

// The loss of a batch, part by part between the passes of the gradient.
class BatchLoss {
 public:
  BatchLoss(const core::TrainingLoss& loss, std::int64_t d_output, const core::TrainingBatch& batch)
      : loss_(loss),
        batch_(batch),
        d_output_(d_output),
        columns_(core::columns_of(loss.groups)),
        counting_(core::rows_that_count(batch.rows(), batch.mask)),
        entropy_(loss.groups, d_output, counting_),
        squares_(d_output, counting_) {}

  void add(std::int64_t first, std::int64_t rows, const float* outs, float* d_outs) {
    const std::int64_t at = first * d_output_;
    const std::int32_t* const mask = batch_.mask == nullptr ? nullptr : batch_.mask + first;
    if (loss_.squares) {
      squares_.add(outs + at, batch_.values + at, rows, mask, d_outs + at);
    } else {
      entropy_.add(outs + at, rows, batch_.choices + first * columns_, mask, d_outs + at);
    }
  }

  double value() const {
    if (loss_.squares) return squares_.loss();
    double sum = 0;
    for (const core::GroupLoss& group : entropy_.losses()) sum += group.loss;
    return sum;
  }

 private:
  const core::TrainingLoss& loss_;
  const core::TrainingBatch& batch_;
  const std::int64_t d_output_, columns_, counting_;
  core::CrossEntropy entropy_;
  core::SquaredError squares_;
};

class HostTraining : public core::PolicyTraining {
 public:
  HostTraining(std::shared_ptr<const core::PolicyWeights> weights, core::TrainingLoss loss,
               const std::vector<core::TrainedTensor>& tensors, core::TrainingStart start)
      : PolicyTraining(std::move(weights), std::move(loss), tensors, start.steps),
        now_(policy()),
        m_(start.m.empty() ? zeros() : std::move(start.m)),
        v_(start.v.empty() ? zeros() : std::move(start.v)),
        next_(policy().values),
        next_m_(zeros()),
        next_v_(zeros()) {
    for (const core::TrainedTensor& tensor : tensors) {
      for (const core::PolicyParameter& p : policy().parameters) {
        if (p.name == tensor.name) order_.push_back(&p);
      }
    }
  }

 private:
  PolicyValues<float> zeros() const { return core::zeros_of<float>(policy().network()); }

  Outcome compute(const core::TrainingBatch& batch, const core::TrainingRule& rule) override {
    Outcome outcome;
    const PolicyValues<float> gradient = gradient_of(batch, &outcome.step.loss);
    outcome.step.norm = norm_of(gradient);
    if (std::isfinite(outcome.step.loss) && std::isfinite(outcome.step.norm)) {
      update(gradient, rule, outcome.step.norm);
      core::derive(policy().network(), &next_);
      outcome.finite = finite(next_) && finite(next_v_);
    }
    return outcome;
  }

  PolicyValues<float> gradient_of(const core::TrainingBatch& batch, double* value) {
    const std::int64_t d_output = policy().config.d_output;
    BatchLoss loss(this->loss(), d_output, batch);
    const auto floats = static_cast<std::size_t>(core::checked_multiply(batch.rows(), d_output, "frames"));
    std::vector<float> outs(floats), d_outs(floats);
    PolicyValues<float> gradient = zeros();
    core::PolicyGradOutputs outputs;
    outputs.weights = &gradient, outputs.outs = outs.data(), outputs.states = batch.states;
    policy_grad(now_, batch.sequences, d_outs.data(), outputs, [&](std::int64_t first, std::int64_t rows) {
      loss.add(first, rows, outs.data(), d_outs.data());
    });
    *value = loss.value();
    return gradient;
  }

  // Tensor by tensor, each in the order of its file.
  double norm_of(const PolicyValues<float>& gradient) const {
    double squares = 0;
    std::vector<float> values;
    for (const core::PolicyParameter* p : order_) {
      values.resize(p->count());
      core::copy_parameter(*p, gradient, values.data());
      squares += core::sum_of_squares(values.data(), static_cast<std::int64_t>(values.size()));
    }
    return std::sqrt(squares);
  }

  void update(const PolicyValues<float>& gradient, const core::TrainingRule& rule, double norm) {
    core::AdamW options = rule.adamw;
    options.gradient_scale = gradient_scale(rule, norm);
    for (const core::TrainedRun& run : runs()) {
      const auto id = static_cast<std::size_t>(run.weight);
      options.weight_decay = run.decays ? rule.adamw.weight_decay : 0;
      const auto at = [&](auto& values) { return values[id].data() + run.first; };
      core::adamw_step<float>(
          options, {at(now_.values), at(gradient), at(m_), at(v_), at(next_), at(next_m_), at(next_v_)},
          static_cast<std::int64_t>(run.count));
    }
  }

  static bool finite(const PolicyValues<float>& values) {
    for (const std::vector<float>& of : values) {
      if (!core::all_finite(of.data(), static_cast<std::int64_t>(of.size()))) return false;
    }
    return true;
  }

  void commit() noexcept override {
    now_.values.swap(next_);
    m_.swap(next_m_);
    v_.swap(next_v_);
  }

  void read_values(bool next, PolicyValues<float>* weights, PolicyValues<float>* m,
                   PolicyValues<float>* v) override {
    if (weights != nullptr) *weights = next ? next_ : now_.values;
    if (m != nullptr) *m = next ? next_m_ : m_;
    if (v != nullptr) *v = next ? next_v_ : v_;
  }

  void run_grad(const core::PolicySequences& sequences, const float* d_outs,
                const core::PolicyGradOutputs& outputs) override {
    policy_grad(now_, sequences, d_outs, outputs);
  }

  core::PolicyWeights now_;
  PolicyValues<float> m_, v_, next_, next_m_, next_v_;
  std::vector<const core::PolicyParameter*> order_;
};

}  // namespace

std::unique_ptr<core::PolicyTraining> make_training(std::shared_ptr<const core::PolicyWeights> weights,
                                                    core::TrainingLoss loss,
                                                    const std::vector<core::TrainedTensor>& tensors,
                                                    core::TrainingStart start) {
  return std::make_unique<HostTraining>(std::move(weights), std::move(loss), tensors, std::move(start));
}

}  // namespace exphil::host
