#include "host/policy/gradient.hpp"

#include <algorithm>
#include <utility>

#include "host/policy/gradient_backward.hpp"
#include "host/policy/gradient_forward.hpp"
#include "host/policy/phase_access.hpp"

namespace exphil::host {

namespace {

// Holds nothing beside the weights, which their owner has anyway.
class HostGradient final : public core::PolicyGradient {
 public:
  explicit HostGradient(std::shared_ptr<const core::PolicyWeights> weights) : weights_(std::move(weights)) {}
  std::size_t resident_bytes() const override { return 0; }
  void run(const core::PolicySequences& sequences, const float* d_outs,
           const core::PolicyGradOutputs& outputs) const override {
    policy_grad(*weights_, sequences, d_outs, outputs);
  }

 private:
  const std::shared_ptr<const core::PolicyWeights> weights_;
};

}  // namespace

std::unique_ptr<core::PolicyGradient> make_gradient(std::shared_ptr<const core::PolicyWeights> weights) {
  return std::make_unique<HostGradient>(std::move(weights));
}

void policy_grad(const core::PolicyWeights& weights, const core::PolicySequences& sequences,
                 const float* d_outs, const core::PolicyGradOutputs& outputs,
                 const std::function<void(std::int64_t, std::int64_t)>& between) {
  for (const core::Phase* phase : core::phases_of(weights.network())) access_of(weights.network(), *phase);
  const PackedWeights packed(weights);
  const std::int64_t seq = sequences.seq;
  const std::int64_t count = std::clamp<std::int64_t>(kGradientRows / seq, 1, sequences.batch);
  GradientRecord record(packed, count, seq, d_outs != nullptr);
  const auto forward = [&](const SequenceGroup& group) { record.run(group, outputs); };
  const auto each_group = [&](const auto& run) {
    for (std::int64_t first = 0; first < sequences.batch; first += count)
      run(SequenceGroup{&sequences, first, std::min(count, sequences.batch - first)});
  };
  if (d_outs == nullptr) return each_group(forward);
  GradientSums sums(weights);
  BackRows rows(weights.network(), count, seq);
  each_group([&](const SequenceGroup& group) {
    forward(group);
    if (between) between(group.first * seq, group.rows());
    pass_back(packed, group, record, {sums, rows}, d_outs, outputs);
  });
  if (outputs.weights != nullptr) sums.write(weights, outputs.weights);
}

}  // namespace exphil::host
