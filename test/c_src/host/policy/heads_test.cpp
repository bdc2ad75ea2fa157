// Mamba-2, Mamba-3 and gated DeltaNet policies on the CPU: every kind of call against the reference and with
// the bits of a lone step, in every precision and of sizes around the panels; what was recorded; gradients;
// sessions.
#include <cmath>
#include <limits>

#include "core/policy/reference.hpp"
#include "core/policy/rounding.hpp"
#include "host/backend.hpp"
#include "host/policy/policy.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/gated_policy.hpp"
#include "support/host_gradient.hpp"
#include "support/mamba3_policy.hpp"
#include "support/numbers.hpp"
#include "support/precision_checks.hpp"
#include "support/random_sessions.hpp"
#include "support/shared_data.hpp"

namespace exphil {

namespace {

using Floats = std::vector<float>;

struct Size {
  std::int64_t channels, keys;
};
// One key; odd; around the panels. A head of one value is normalised to its sign, whose gradient is nothing.
constexpr Size kSizes[] = {{3, 1}, {5, 3}, {16, 16}, {9, 33}, {33, 17}};

}  // namespace

TEST_CASE("every policy with a matrix state on the CPU, of every size and on every SIMD target",
          "[host][policy][heads]") {
  for (const Size& size : kSizes) {
    for (const test::PolicyForm& form : test::matrix_forms(size.channels, size.keys)) {
      test::for_each_target([&] {
        INFO(host::simd_target() << " " << form.name << ", " << size.channels << ", " << size.keys);
        test::check_policy_form(*host::make_policy(*form.weights, {}), *form.weights, 20, {2, 5, 9, 70});
      });
    }
  }
}

TEST_CASE("every policy with a matrix state on the CPU in every precision",
          "[host][policy][heads][precision]") {
  for (const core::Precision precision : test::kPrecisions) {
    for (const Size& size : kSizes) {
      for (const test::PolicyForm& form : test::matrix_forms(size.channels, size.keys)) {
        INFO(form.name << ", " << size.channels << " " << core::precision_name(precision));
        const core::PolicyWeights weights = core::rounded_weights(*form.weights, precision);
        test::check_policy_form(*host::make_policy(weights, {}), weights, 12, {2, 9});
      }
    }
  }
}

// Its passes are shared by threads: 70 frames are two passes.
TEST_CASE("policies with a matrix state whose frames are shared by threads", "[host][policy][heads]") {
  for (const test::PolicyForm& form : test::matrix_forms(67, 40)) {
    INFO(form.name);
    test::check_policy_form(*host::make_policy(*form.weights, {}), *form.weights, 70, {3, 70});
  }
}

TEST_CASE("the recorded windows of gated DeltaNet on the CPU, in every precision",
          "[host][policy][heads][exphil][precision]") {
  if (!test::have_trunks()) return;
  const test::RecordedTrunk set{"gated_deltanet_e32_h32_w20", 20};
  const auto exact = set.load();
  const Floats windows = set.io("windows"), recorded = set.io("logits_batch1");
  for (const core::Precision precision : test::kPrecisions) {
    INFO(core::precision_name(precision));
    const core::PolicyWeights weights = core::rounded_weights(*exact, precision);
    Floats out(recorded.size());
    host::make_policy(weights, {})->window(windows.data(), 8, set.seq, out.data());
    if (precision == core::Precision::f32) CHECK(test::relative_error(out, recorded) <= 1e-5);
    for (std::int64_t i = 0; i < 2; ++i) {
      std::vector<double> expected(static_cast<std::size_t>(set.seq * weights.config.d_output));
      core::policy_reference_window(weights, windows.data() + i * set.seq * weights.config.d_input, set.seq,
                                    expected.data());
      CHECK(test::relative_error(out.data() + i * weights.config.d_output,
                                 expected.data() + (set.seq - 1) * weights.config.d_output,
                                 static_cast<std::size_t>(weights.config.d_output)) <= 1e-5);
    }
  }
}

TEST_CASE("the recorded frames and states of Mamba-2 and Mamba-3 on the CPU",
          "[host][policy][heads][mamba2][mamba3]") {
  if (!test::have_mamba23()) return;
  for (const test::RecordedMixer& set : test::recorded_mixers()) {
    INFO(set.name);
    const auto weights = test::load_mixer(set.name);
    const core::PolicyConfig& c = weights->config;
    const std::string golden = test::mixer_path(set.name, "golden.safetensors");
    const Floats obs = test::read_f32(golden, "obs");
    const auto expected = test::read_f64(golden, "logits");
    const auto policy = host::make_policy(*weights, {});
    const auto state = policy->new_state();
    core::State* const one = state.get();
    Floats out(expected.size());
    for (std::size_t t = 0; t < obs.size() / static_cast<std::size_t>(c.d_input); ++t) {
      policy->step(&one, 1, obs.data() + t * static_cast<std::size_t>(c.d_input),
                   out.data() + t * static_cast<std::size_t>(c.d_output));
    }
    CHECK(test::relative_error(out, expected) <= 1e-5);
    Floats values(static_cast<std::size_t>(c.state_floats()));
    policy->read_state(*state, values.data());
    // Errors of angles add up, and turn k and the state with them: plain f32 has 2e-5 too.
    CHECK(test::mixer_state_error(set.name, c, {values.begin(), values.end()}) <=
          (set.is_mamba3() ? 5e-5 : 1e-5));
  }
}

TEST_CASE("the gradient of policies with a matrix state around the panels",
          "[host][policy][heads][gradient]") {
  for (const Size& size : kSizes) {
    for (const test::PolicyForm& form : test::matrix_forms(size.channels, size.keys)) {
      CAPTURE(form.name, size.channels, size.keys);
      for (const bool with_state : {false, true}) {
        const auto c = test::policy_grad_case(form.weights->config, 3, 17, with_state);
        test::check_policy_grad(test::on_host(*form.weights), *form.weights, c, 5e-5);
      }
    }
  }
}

TEST_CASE("the gradient of the recorded gated DeltaNet", "[host][policy][heads][gradient][exphil]") {
  if (!test::have_trunks()) return;
  const test::RecordedTrunk set{"gated_deltanet_e32_h32_w20", 20};
  const auto weights = set.load();
  test::PolicyGradCase c = test::policy_grad_case(weights->config, 2, set.seq, false);
  const Floats windows = set.io("windows");
  std::copy_n(windows.begin(), c.frames.size(), c.frames.begin());
  test::check_policy_grad(test::on_host(*weights), *weights, c, 5e-5);
}

// The states of more than two parts are computed again.
TEST_CASE("the gradient of long sequences with a matrix state, and its bits",
          "[host][policy][heads][gradient]") {
  for (const test::PolicyForm& form : test::matrix_forms(5, 3)) {
    CAPTURE(form.name);
    const auto c = test::policy_grad_case(form.weights->config, 2, 70, true);
    test::check_policy_grad(test::on_host(*form.weights), *form.weights, c, 1e-4);
    test::check_policy_grad_bits(test::on_host(*form.weights), *form.weights, c);
  }
}

TEST_CASE("NaN in one sequence of a policy with a matrix state leaves the others the same bits",
          "[host][policy][heads][gradient]") {
  for (const test::PolicyForm& form : test::matrix_forms(9, 17)) {
    CAPTURE(form.name);
    test::check_policy_grad_nan(test::on_host(*form.weights), *form.weights, 20);
  }
}

// The padding of a row takes part in its sums.
TEST_CASE("a state that a NaN has reached is sound again once another one is written into it",
          "[host][policy][heads]") {
  for (const test::PolicyForm& form : test::matrix_forms(5, 3)) {
    INFO(form.name);
    const core::PolicyConfig& c = form.weights->config;
    const auto policy = host::make_policy(*form.weights, {});
    const Floats frame = test::Random(3).vector(static_cast<std::size_t>(c.d_input), -1.0f, 1.0f),
                 bad(static_cast<std::size_t>(c.d_input), std::numeric_limits<float>::quiet_NaN());
    const auto sound = policy->new_state(), other = policy->new_state();
    core::State *const first = sound.get(), *const second = other.get();
    Floats expected(static_cast<std::size_t>(c.d_output)), out = expected;
    policy->step(&first, 1, frame.data(), expected.data());
    policy->step(&second, 1, bad.data(), out.data());
    Floats values(static_cast<std::size_t>(c.state_floats()));
    policy->read_state(*sound, values.data());
    policy->write_state(*other, values.data());
    policy->step(&first, 1, frame.data(), expected.data());
    policy->step(&second, 1, frame.data(), out.data());
    CHECK(test::same_bits(out, expected));
  }
}

TEST_CASE("random operations of sessions with a matrix state have the bits of replays on one thread",
          "[host][heads][storm][sessions]") {
  const std::int64_t operations = test::session_operations(20'000);
  for (const test::PolicyForm& form : test::matrix_forms(9, 5, 2, 6)) {
    INFO(form.name);
    std::vector<std::shared_ptr<core::Policy>> policies;
    for (auto& weights : test::in_every_precision(*form.weights)) {
      policies.push_back(host::host_backend()->load(weights, {}));
    }
    test::check_random_sessions(policies, operations / 13, 7);
  }
}

}  // namespace exphil
