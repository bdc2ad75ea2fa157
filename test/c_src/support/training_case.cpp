#include "support/training_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/policy_grad_checks.hpp"

namespace exphil::test {
namespace {

// One choice of the first outputs, events of some others, and at least one output of no group.
core::TrainingLoss groups_of(std::int64_t d_output) {
  core::TrainingLoss loss;
  const std::int64_t choice = std::max<std::int64_t>(1, d_output / 2);
  loss.groups.push_back({"choice", 0, choice, false});
  if (d_output - choice > 1) loss.groups.push_back({"events", choice + 1, d_output - choice - 1, true});
  return loss;
}

// A policy that was not made of a checkpoint has no tensors: each weight is one.
std::shared_ptr<const core::PolicyWeights> with_parameters(
    std::shared_ptr<const core::PolicyWeights> policy) {
  if (!policy->parameters.empty()) return policy;
  auto named = std::make_shared<core::PolicyWeights>(*policy);
  for (std::size_t id = 0; id < named->network().weights.size(); ++id) {
    const core::Weight& weight = named->network().weights[id];
    if (weight.negative_exp_of != core::kNone || weight.size() == 0) continue;
    core::PolicyParameter p;
    p.name = "weight" + std::to_string(id), p.shape = {weight.rows, weight.columns};
    p.weight = static_cast<core::WeightId>(id);
    named->parameters.push_back(p);
  }
  return named;
}

double distance(const std::vector<float>& p, const std::vector<float>& q, double* size) {
  double squares = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double difference = double{p[i]} - double{q[i]};
    squares += difference * difference, *size += double{q[i]} * double{q[i]};
  }
  return squares;
}

// Of the trained values; the others are not compared.
double relative_error(const core::PolicyWeights& policy, const core::PolicyValues<float>& values,
                      const core::PolicyValues<float>& expected) {
  double squares = 0, size = 0;
  for (const core::PolicyParameter& p : policy.parameters) {
    std::vector<float> left(p.count()), right(p.count());
    core::copy_parameter(p, values, left.data()), core::copy_parameter(p, expected, right.data());
    squares += distance(left, right, &size);
  }
  return std::sqrt(squares / std::max(size, 1e-30));
}

}  // namespace

TrainingCase::TrainingCase(std::shared_ptr<const core::PolicyWeights> policy, bool squares,
                           std::int64_t batch, std::int64_t seq, bool with_state)
    : weights(with_parameters(std::move(policy))),
      sequences(policy_grad_case(weights->config, batch, seq, with_state)) {
  const std::int64_t d_output = weights->config.d_output;
  if (!squares) loss = groups_of(d_output);
  loss.squares = squares;
  for (const core::PolicyParameter& p : weights->parameters) {
    tensors.push_back({p.name, p.shape.rank() > 1 && p.name.find("A_log") == std::string::npos});
  }
  for (std::int64_t row = 0; row < batch * seq; ++row) {
    mask.push_back(row % 5 == 3 ? 0 : 1);
    for (const core::LossGroup& group : loss.groups) {
      for (std::int64_t k = 0; k < group.columns(); ++k) {
        const std::int64_t most = group.binary ? 2 : group.count;
        choices.push_back((row + k) % 7 == 2 ? -1 : static_cast<std::int32_t>((3 * row + k) % most));
      }
    }
    for (std::int64_t i = 0; i < d_output; ++i) values.push_back(static_cast<float>(std::sin(row + 0.3 * i)));
  }
  states.resize(static_cast<std::size_t>(batch * weights->config.state_floats()));
}

core::TrainingBatch TrainingCase::given() {
  core::TrainingBatch batch;
  batch.sequences = sequences.sequences();
  batch.choices = choices.data(), batch.values = values.data(), batch.mask = mask.data();
  batch.states = states.data();
  return batch;
}

core::TrainingRule TrainingCase::rule(std::int64_t step) const {
  core::TrainingRule rule;
  rule.adamw.learning_rate = 1e-2, rule.adamw.weight_decay = 0.1, rule.adamw.step = step;
  rule.clip_norm = 0.01;
  return rule;
}

TrainingState state_of(core::PolicyTraining& training) {
  TrainingState state;
  state.weights = state.m = state.v = core::zeros_of<float>(training.policy().network());
  state.steps = training.read(&state.weights, &state.m, &state.v);
  return state;
}

bool same_bits(const TrainingState& p, const TrainingState& q) {
  const auto same = [](const core::PolicyValues<float>& left, const core::PolicyValues<float>& right) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (!same_bits(left[i], right[i])) return false;
    }
    return left.size() == right.size();
  };
  return p.steps == q.steps && same(p.weights, q.weights) && same(p.m, q.m) && same(p.v, q.v);
}

void check_training(const MakeTraining& train, const MakeTraining& expected, TrainingCase c) {
  const auto training = c.make(train), reference = c.make(expected);
  TrainingState after_first;
  for (std::int64_t step = 1; step <= 3; ++step) {
    CAPTURE(step);
    const core::TrainingStep made = training->step(c.given(), c.rule(step));
    const std::vector<float> states = c.states;
    const core::TrainingStep wanted = reference->step(c.given(), c.rule(step));
    CHECK(std::abs(made.loss - wanted.loss) <= 2e-5 * std::abs(wanted.loss));
    CHECK(std::abs(made.norm - wanted.norm) <= 1e-4 * wanted.norm);
    double size = 0;
    const double apart = distance(states, c.states, &size);
    CHECK(apart <= 1e-8 * size);
    if (step == 1) after_first = state_of(*training);
  }
  const TrainingState last = state_of(*training), wanted = state_of(*reference);
  CHECK(last.steps == 3);
  CHECK(relative_error(*c.weights, last.m, wanted.m) < 2e-3);
  CHECK(relative_error(*c.weights, last.weights, wanted.weights) < 2e-3);
  // Three steps of the first run are the first, its numbers, and two more.
  auto weights = std::make_shared<core::PolicyWeights>(*c.weights);
  weights->values = after_first.weights;
  core::derive(weights->network(), &weights->values);
  c.weights = weights;
  const auto again = c.make(train, {1, after_first.m, after_first.v});
  for (std::int64_t step = 2; step <= 3; ++step) again->step(c.given(), c.rule(step));
  CHECK(same_bits(state_of(*again), last));
}

void check_refused_training(const MakeTraining& train, TrainingCase c) {
  const auto training = c.make(train);
  training->step(c.given(), c.rule(1));
  const TrainingState before = state_of(*training);
  const auto refuses = [&](core::ErrorKind kind, const char* argument, const core::TrainingRule& rule) {
    const CaughtError error = error_of([&] { training->step(c.given(), rule); });
    CHECK(error.kind == kind);
    CHECK(error.argument == argument);
    CHECK(same_bits(state_of(*training), before));
  };
  refuses(core::ErrorKind::mismatch, "trainer", c.rule(1));
  refuses(core::ErrorKind::mismatch, "trainer", c.rule(3));
  core::TrainingRule fast = c.rule(2);
  fast.adamw.learning_rate = 3e38;
  refuses(core::ErrorKind::invalid_argument, ":learning_rate", fast);
  if (!c.loss.squares) {
    const std::vector<std::int32_t> choices = c.choices;
    c.choices[0] = 10000;
    refuses(core::ErrorKind::invalid_argument, "targets", c.rule(2));
    c.choices = choices;
  }
  const std::vector<float> frames = c.sequences.frames;
  std::fill(c.sequences.frames.begin(), c.sequences.frames.end(), std::numeric_limits<float>::quiet_NaN());
  refuses(core::ErrorKind::invalid_argument, "outs", c.rule(2));
  c.sequences.frames = frames;
  training->step(c.given(), c.rule(2));
  CHECK(state_of(*training).steps == 2);
}

}  // namespace exphil::test
