#include "support/policy_grad_checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/policy/gradient_reference.hpp"
#include "core/policy/reference.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

namespace {

using Floats = std::vector<float>;

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

// Sequences from `first` on, as a call of their own.
PolicyGradCase part_of(const PolicyGradCase& c, const core::PolicyConfig& config, std::int64_t first,
                       std::int64_t count) {
  const auto cut = [&](const auto& values, std::int64_t each) {
    using Values = std::decay_t<decltype(values)>;
    return values.empty() ? Values()
                          : Values(values.begin() + first * each, values.begin() + (first + count) * each);
  };
  PolicyGradCase part;
  part.batch = count, part.seq = c.seq;
  part.frames = cut(c.frames, c.seq * config.d_input);
  part.d_outs = cut(c.d_outs, c.seq * config.d_output);
  part.states = cut(c.states, config.state_floats());
  return part;
}

bool same_part(const Floats& whole, const Floats& part, std::int64_t number) {
  const std::size_t each = part.size();
  return each == 0 || std::memcmp(whole.data() + size(number) * each, part.data(), each * sizeof(float)) == 0;
}

// A weight of one value for each head has for its gradient a sum over all frames, channels and states of that
// head, whose parts have both signs. What is left of their sizes, 1 where all have the same sign: an error
// relative to the parts of the frames is so many times larger relative to the sums.
constexpr std::size_t kMostHeads = 16;
double left_of_parts(const core::PolicyWeights& weights, const PolicyGradCase& c, std::size_t id) {
  const std::size_t width = size(weights.config.d_output), count = weights.values[id].size();
  std::vector<double> sums(count), sizes(count);
  for (std::size_t frame = 0; frame < c.d_outs.size(); frame += width) {
    std::vector<double> d_outs(c.d_outs.size());
    std::copy_n(c.d_outs.begin() + static_cast<std::ptrdiff_t>(frame), width,
                d_outs.begin() + static_cast<std::ptrdiff_t>(frame));
    const auto parts =
        core::policy_grad_reference<float>(weights.config, weights.values, c.sequences(), d_outs.data())
            .weights[id];
    for (std::size_t i = 0; i < count; ++i) sums[i] += parts[i], sizes[i] += std::fabs(parts[i]);
  }
  const auto largest = [](const std::vector<double>& values) {
    double most = 0;
    for (const double value : values) most = std::max(most, std::fabs(value));
    return most;
  };
  return largest(sums) / largest(sizes);
}

}  // namespace

PolicyGradResult run_policy_grad(const PolicyGrad& grad, const core::PolicyWeights& weights,
                                 const PolicyGradCase& c, bool forward_only) {
  const core::PolicyConfig& config = weights.config;
  PolicyGradResult r;
  r.weights = core::zeros_of<float>(config.network);
  r.frames.resize(c.frames.size());
  r.outs.resize(c.d_outs.size());
  r.states.resize(size(c.batch * config.state_floats()));
  r.d_states.resize(r.states.size());
  const core::PolicyGradOutputs outputs{&r.weights, r.frames.data(), r.outs.data(), r.states.data(),
                                        r.d_states.data()};
  const Floats d_outs = c.d_outs_f32();
  grad(c.sequences(), forward_only ? nullptr : d_outs.data(), outputs);
  return r;
}

bool same_bits(const Floats& p, const Floats& q) {
  return p.size() == q.size() &&
         (p.empty() || std::memcmp(p.data(), q.data(), p.size() * sizeof(float)) == 0);
}

bool same_bits(const PolicyGradResult& p, const PolicyGradResult& q) {
  for (std::size_t i = 0; i < p.weights.size(); ++i) {
    if (!same_bits(p.weights[i], q.weights[i])) return false;
  }
  return same_bits(p.frames, q.frames) && same_bits(p.outs, q.outs) && same_bits(p.d_states, q.d_states);
}

void check_policy_grad(const PolicyGrad& grad, const core::PolicyWeights& weights, const PolicyGradCase& c,
                       double tolerance) {
  const PolicyGradResult found = run_policy_grad(grad, weights, c);
  const auto expected =
      core::policy_grad_reference<float>(weights.config, weights.values, c.sequences(), c.d_outs.data());
  CHECK(relative_error(found.outs, expected.outs) <= tolerance);
  CHECK(relative_error(found.frames, expected.frames) <= tolerance);
  CHECK(relative_error(found.d_states, expected.states) <= tolerance);
  for (std::size_t id = 0; id < found.weights.size(); ++id) {
    CAPTURE(weights.network().weights[id].name);
    const double error = relative_error(found.weights[id], expected.weights[id]);
    const bool of_heads = found.weights[id].size() <= kMostHeads && error > tolerance;
    CHECK(error <= (of_heads ? tolerance / left_of_parts(weights, c, id) : tolerance));
  }
  const core::PolicyConfig& config = weights.config;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    core::PolicyReferenceState state(config);
    state.length = c.sequences().length(config);
    const std::int64_t floats = config.state_floats();
    if (!c.states.empty()) {
      state.values.assign(c.states.begin() + b * floats, c.states.begin() + (b + 1) * floats);
    }
    std::vector<double> out(size(config.d_output));
    for (std::int64_t t = 0; t < c.seq; ++t) {
      core::policy_reference_step(weights, state, c.frames.data() + (b * c.seq + t) * config.d_input,
                                  out.data());
    }
    CHECK(relative_error(found.states.data() + b * floats, state.values.data(), state.values.size()) <=
          tolerance);
  }
}

void check_policy_grad_bits(const PolicyGrad& grad, const core::PolicyWeights& weights,
                            const PolicyGradCase& c) {
  const PolicyGradResult together = run_policy_grad(grad, weights, c);
  CHECK(same_bits(run_policy_grad(grad, weights, c), together));
  for (const std::int64_t b : {std::int64_t{0}, c.batch / 2, c.batch - 1}) {
    const PolicyGradResult one = run_policy_grad(grad, weights, part_of(c, weights.config, b, 1));
    CHECK(same_part(together.outs, one.outs, b));
    CHECK(same_part(together.frames, one.frames, b));
    CHECK(same_part(together.states, one.states, b));
    CHECK(same_part(together.d_states, one.d_states, b));
  }
  CHECK(same_bits(run_policy_grad(grad, weights, c, true).outs, together.outs));
}

void check_policy_grad_nan(const PolicyGrad& grad, const core::PolicyWeights& weights, std::int64_t seq) {
  const core::PolicyConfig& config = weights.config;
  PolicyGradCase c = policy_grad_case(config, 3, seq, false);
  const PolicyGradResult sound = run_policy_grad(grad, weights, c);
  const std::size_t each = size(seq * config.d_input);
  c.frames[each + 7] = std::numeric_limits<float>::quiet_NaN();
  const PolicyGradResult broken = run_policy_grad(grad, weights, c);
  for (const std::size_t other : {std::size_t{0}, std::size_t{2}}) {
    CHECK(std::memcmp(broken.frames.data() + other * each, sound.frames.data() + other * each,
                      each * sizeof(float)) == 0);
  }
  CHECK(std::isnan(broken.frames[each + 7]));
  core::WeightId last = core::kNone;  // of the last phase that has weights
  for (const core::Phase& phase : config.network.output) {
    const std::vector<core::WeightId> weights = core::weights_of(phase);  // its bias last
    if (!weights.empty()) last = weights.front();
  }
  REQUIRE(last != core::kNone);
  CHECK(std::isnan(core::values_of(broken.weights, last)[0]));
}

}  // namespace exphil::test
