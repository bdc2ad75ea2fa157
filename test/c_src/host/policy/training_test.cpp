// Steps of training on the CPU: the same bits as the parts that they are made of, and refused steps.
#include "host/policy/training.hpp"

#include <cmath>

#include "core/training/adamw.hpp"
#include "host/policy/gradient.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/training_case.hpp"

namespace exphil::test {
namespace {

// The same step by the calls that it consists of, each over the whole batch, tensor by tensor.
TrainingState composed(TrainingCase c, const TrainingState& before, double* loss_value) {
  core::PolicyWeights now = *c.weights;
  now.values = before.weights;
  const core::TrainingBatch batch = c.given();
  const std::int64_t rows = batch.rows(), d_output = now.config.d_output;
  std::vector<float> outs(static_cast<std::size_t>(rows * d_output)), d_outs(outs.size());
  core::PolicyGradOutputs forward;
  forward.outs = outs.data();
  host::policy_grad(now, batch.sequences, nullptr, forward);
  *loss_value = 0;
  if (c.loss.squares) {
    *loss_value =
        core::mean_squared_error(outs.data(), batch.values, rows, d_output, batch.mask, d_outs.data());
  } else {
    for (const core::GroupLoss& group : core::cross_entropy(outs.data(), rows, d_output, c.loss.groups,
                                                            batch.choices, batch.mask, d_outs.data())) {
      *loss_value += group.loss;
    }
  }
  core::PolicyValues<float> gradient = core::zeros_of<float>(now.network());
  core::PolicyGradOutputs outputs;
  outputs.weights = &gradient;
  host::policy_grad(now, batch.sequences, d_outs.data(), outputs);
  double squares = 0;
  std::vector<float> g, w, m, v;
  const auto take = [](const core::PolicyParameter& p, const core::PolicyValues<float>& from) {
    std::vector<float> values(p.count());
    core::copy_parameter(p, from, values.data());
    return values;
  };
  for (const core::PolicyParameter& p : now.parameters) {
    g = take(p, gradient);
    squares += core::sum_of_squares(g.data(), static_cast<std::int64_t>(g.size()));
  }
  const core::TrainingRule rule = c.rule(before.steps + 1);
  TrainingState after = before;
  after.steps = before.steps + 1;
  for (std::size_t i = 0; i < now.parameters.size(); ++i) {
    const core::PolicyParameter& p = now.parameters[i];
    core::AdamW options = rule.adamw;
    options.weight_decay = c.tensors[i].decays ? rule.adamw.weight_decay : 0;
    options.gradient_scale = std::sqrt(squares) > *rule.clip_norm ? *rule.clip_norm / std::sqrt(squares) : 1;
    g = take(p, gradient), w = take(p, before.weights), m = take(p, before.m), v = take(p, before.v);
    core::adamw_step<float>(options, {w.data(), g.data(), m.data(), v.data(), w.data(), m.data(), v.data()},
                            static_cast<std::int64_t>(w.size()));
    core::put_parameter(p, w.data(), &after.weights);
    core::put_parameter(p, m.data(), &after.m), core::put_parameter(p, v.data(), &after.v);
  }
  core::derive(now.network(), &after.weights);
  return after;
}

TEST_CASE("a step of training has the bits of its parts", "[policy][training]") {
  for (const NamedPolicy& policy : every_small_policy()) {
    CAPTURE(policy.name);
    for (const bool squares : {false, true}) {
      TrainingCase c(policy.weights, squares, 3, 7, squares);
      const auto training = c.make(host::make_training);
      TrainingState expected = state_of(*training);
      for (std::int64_t step = 1; step <= 3; ++step) {
        double loss = 0;
        expected = composed(c, expected, &loss);
        CHECK(training->step(c.given(), c.rule(step)).loss == loss);
        CHECK(same_bits(state_of(*training), expected));
      }
    }
  }
}

TEST_CASE("a batch of several groups of the gradient has the bits of its parts", "[policy][training]") {
  TrainingCase c(every_small_policy().front().weights, false, 11, 300, true);
  const auto training = c.make(host::make_training);
  double loss = 0;
  const TrainingState expected = composed(c, state_of(*training), &loss);
  CHECK(training->step(c.given(), c.rule(1)).loss == loss);
  CHECK(same_bits(state_of(*training), expected));
}

TEST_CASE("training goes on from its numbers with the same bits", "[policy][training]") {
  for (const NamedPolicy& policy : every_small_policy()) {
    CAPTURE(policy.name);
    check_training(host::make_training, host::make_training, TrainingCase(policy.weights, false, 2, 9, true));
  }
}

TEST_CASE("a step that cannot be made changes nothing", "[policy][training]") {
  for (const bool squares : {false, true}) {
    check_refused_training(host::make_training,
                           TrainingCase(every_small_policy().front().weights, squares, 2, 5, true));
  }
}

TEST_CASE("runs of values that are trained alike", "[policy][training]") {
  for (const NamedPolicy& policy : every_small_policy()) {
    CAPTURE(policy.name);
    const TrainingCase c(policy.weights, false, 1, 1, false);
    std::size_t values = 0, in_runs = 0;
    for (const core::PolicyParameter& p : c.weights->parameters) values += p.count();
    REQUIRE(values > 0);
    const auto runs = core::trained_runs(*c.weights, c.tensors);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      in_runs += runs[i].count;
      if (i == 0 || runs[i - 1].weight != runs[i].weight) continue;
      const std::size_t end = runs[i - 1].first + runs[i - 1].count;  // or else they are one run
      CHECK((runs[i].first > end || (runs[i].first == end && runs[i].decays != runs[i - 1].decays)));
    }
    CHECK(values == in_runs);
    std::vector<core::TrainedTensor> twice = c.tensors;
    twice.push_back(twice.front());
    CHECK(error_of([&] { core::trained_runs(*c.weights, twice); }).says("one place"));
    twice.back().name = "other";
    CHECK(error_of([&] { core::trained_runs(*c.weights, twice); }).says("other"));
  }
}

}  // namespace
}  // namespace exphil::test
