// The oracle of a policy's gradient against finite differences of the oracle of its outputs, weight by
// weight.
#include <algorithm>
#include <cmath>

#include "core/policy/gradient_reference.hpp"
#include "core/policy/reference.hpp"
#include "support/catch.hpp"
#include "support/gated_policy.hpp"
#include "support/melee.hpp"
#include "support/numbers.hpp"
#include "support/policy_grad_case.hpp"

namespace exphil {

namespace {

using core::PolicyWeights;
using test::PolicyGradCase;

// The loss sum(outs d_outs) of the forward reference with one value of one vector set to `value`.
double loss_with(PolicyWeights& weights, const PolicyGradCase& c, float& place, float value) {
  const float before = place;
  place = value;
  const double loss = test::reference_loss(weights, c);
  place = before;
  return loss;
}

// The derivative by one weight: central differences at two distances, extrapolated. The distances are those
// of the f32 values in fact. Where the two disagree, a dt crossed a bound of its clip (or a head's relu zero)
// in between: then closer ones, and of all the two that agree best.
double finite_difference(PolicyWeights& weights, const PolicyGradCase& c, float& place) {
  const auto slope = [&](float distance) {
    const float above = place + distance, below = place - distance;
    return (loss_with(weights, c, place, above) - loss_with(weights, c, place, below)) /
           (double{above} - double{below});
  };
  double best = 0, disagreement = INFINITY;
  for (float far = std::max(std::abs(place), 0.25f) / 64; far > 2e-5f; far /= 8) {
    const double near = slope(far / 2), wide = slope(far);
    if (std::abs(near - wide) < disagreement) best = (4 * near - wide) / 3;
    disagreement = std::min(disagreement, std::abs(near - wide));
    if (disagreement <= 3e-5 * std::abs(near)) break;
  }
  return best;
}

// A is a weight of its own to the forward reference.
bool is_a_log(const PolicyWeights& weights, std::size_t id) {
  const auto& all = weights.network().weights;
  return std::any_of(all.begin(), all.end(), [id](const core::Weight& weight) {
    return weight.negative_exp_of == static_cast<core::WeightId>(id);
  });
}

// Every vector's gradient against finite differences, relative to the vector's largest.
void check_every_weight(const PolicyWeights& given, const PolicyGradCase& c) {
  PolicyWeights weights = given;
  const auto gradient =
      core::policy_grad_reference<float>(weights.config, weights.values, c.sequences(), c.d_outs.data());
  for (std::size_t i = 0; i < weights.values.size(); ++i) {
    const core::WeightId log = weights.network().weights[i].negative_exp_of;
    CAPTURE(weights.network().weights[i].name);
    if (log != core::kNone) {
      for (std::size_t k = 0; k < weights.values[i].size(); ++k) {
        CHECK(core::values_of(gradient.weights, log)[k] == gradient.weights[i][k] * weights.values[i][k]);
      }
    }
    if (is_a_log(weights, i)) continue;
    std::vector<double> expected;
    for (float& value : weights.values[i]) expected.push_back(finite_difference(weights, c, value));
    CHECK(test::relative_error(gradient.weights[i], expected) <= 1e-5);
  }
}

}  // namespace

TEST_CASE("the gradient of every weight of small policies is that of finite differences",
          "[policy][gradient]") {
  for (const test::NamedPolicy& policy : test::every_small_policy()) {
    CAPTURE(policy.name);
    for (const bool with_state : {false, true}) {
      check_every_weight(*policy.weights, test::policy_grad_case(policy.weights->config, 2, 7, with_state));
    }
  }
}

TEST_CASE("the gradient by the frames and the states is that of finite differences", "[policy][gradient]") {
  for (const test::NamedPolicy& policy : test::every_small_policy()) {
    CAPTURE(policy.name);
    PolicyWeights weights = *policy.weights;
    PolicyGradCase c = test::policy_grad_case(weights.config, 1, 5, true);
    const auto gradient =
        core::policy_grad_reference<float>(weights.config, weights.values, c.sequences(), c.d_outs.data());
    std::vector<double> expected;
    for (float& value : c.frames) expected.push_back(finite_difference(weights, c, value));
    CHECK(test::relative_error(gradient.frames, expected) <= 1e-5);
    expected.clear();
    for (float& value : c.states) expected.push_back(finite_difference(weights, c, value));
    CHECK(test::relative_error(gradient.states, expected) <= 1e-5);
  }
}

TEST_CASE("200 weights of the shared policy have the gradient of finite differences",
          "[policy][gradient][melee]") {
  if (!test::have_melee()) return;
  PolicyWeights weights = *test::melee_policy();
  const test::Match match = test::melee_match();
  PolicyGradCase c = test::policy_grad_case(weights.config, 1, 4, false);
  std::copy_n(match.obs_at(1000), c.frames.size(), c.frames.begin());
  const auto gradient =
      core::policy_grad_reference<float>(weights.config, weights.values, c.sequences(), c.d_outs.data());
  test::Random random(11);
  std::vector<double> expected, found;
  while (expected.size() < 200) {
    const std::size_t which = random.bits() % weights.values.size();
    if (is_a_log(weights, which)) continue;
    const std::size_t at = random.bits() % weights.values[which].size();
    expected.push_back(finite_difference(weights, c, weights.values[which][at]));
    found.push_back(gradient.weights[which][at]);
    CAPTURE(which, at, found.back(), expected.back());
    CHECK(std::abs(found.back() - expected.back()) <= 1e-5 * (1 + std::abs(expected.back())));
  }
  CHECK(test::relative_error(found, expected) <= 1e-6);
}

}  // namespace exphil
