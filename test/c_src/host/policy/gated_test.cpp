// GRU, LSTM, minGRU and minLSTM policies on the CPU: every kind of call against the reference and with the
// bits of a lone step, in every precision and of sizes around the panels; what Axon recorded; gradients;
// sessions.
#include <cmath>

#include "core/policy/reference.hpp"
#include "core/policy/rounding.hpp"
#include "host/backend.hpp"
#include "host/policy/policy.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/gated_policy.hpp"
#include "support/host_gradient.hpp"
#include "support/numbers.hpp"
#include "support/precision_checks.hpp"
#include "support/random_sessions.hpp"

namespace exphil {

namespace {

using Floats = std::vector<float>;

// One value; odd; beyond a panel, with wider and with narrower frames.
std::vector<test::GatedSpec> sizes() {
  test::GatedSpec one, odd, wide, narrow;
  one.d_input = one.units = one.n_layer = 1;
  odd.d_input = 7, odd.units = 5, odd.n_layer = 3;
  wide.d_input = 37, wide.units = 17;
  narrow.d_input = 9, narrow.units = 33;
  return {one, odd, wide, narrow};
}

}  // namespace

TEST_CASE("every gated policy on the CPU, of every size and on every SIMD target", "[host][policy][gated]") {
  for (const test::GatedSpec& spec : sizes()) {
    for (const test::PolicyForm& form : test::gated_forms(spec)) {
      test::for_each_target([&] {
        INFO(host::simd_target() << " " << form.name << ", units " << spec.units);
        test::check_policy_form(*host::make_policy(*form.weights, {}), *form.weights, 20, {2, 5, 9, 70});
      });
    }
  }
}

TEST_CASE("every gated policy on the CPU in every precision", "[host][policy][gated][precision]") {
  for (const core::Precision precision : test::kPrecisions) {
    for (const test::GatedSpec& spec : sizes()) {
      for (const test::PolicyForm& form : test::gated_forms(spec)) {
        INFO(form.name << ", units " << spec.units << " " << core::precision_name(precision));
        const core::PolicyWeights weights = core::rounded_weights(*form.weights, precision);
        test::check_policy_form(*host::make_policy(weights, {}), weights, 12, {2, 9});
      }
    }
  }
}

// Its passes are shared by threads, the walks too: 70 frames are two passes.
TEST_CASE("gated policies whose frames are shared by threads", "[host][policy][gated]") {
  test::GatedSpec spec;
  spec.d_input = 50, spec.units = 130, spec.n_layer = 2;
  for (const test::PolicyForm& form : test::gated_forms(spec)) {
    INFO(form.name);
    test::check_policy_form(*host::make_policy(*form.weights, {}), *form.weights, 70, {3, 70});
  }
}

TEST_CASE("the recorded windows of gated policies on the CPU", "[host][policy][gated][exphil]") {
  if (!test::have_trunks()) return;
  for (const test::RecordedTrunk& set : test::recorded_trunks()) {
    INFO(set.name);
    const auto weights = set.load();
    const auto policy = host::make_policy(*weights, {});
    const Floats windows = set.io("windows"), expected = set.io("logits_batch1");
    Floats out(expected.size());
    policy->window(windows.data(), 8, set.seq, out.data());
    CHECK(test::relative_error(out, expected) <= 1e-5);
  }
}

// As of Mamba's: the float64 reference of the rounded weights.
TEST_CASE("the recorded windows of gated policies in every precision",
          "[host][policy][gated][exphil][precision]") {
  if (!test::have_trunks()) return;
  for (const test::RecordedTrunk& set : test::recorded_trunks()) {
    const auto exact = set.load();
    const Floats windows = set.io("windows");
    for (const core::Precision precision : test::kPrecisions) {
      INFO(set.name << " " << core::precision_name(precision));
      const core::PolicyWeights weights = core::rounded_weights(*exact, precision);
      const auto policy = host::make_policy(weights, {});
      const core::PolicyConfig& c = weights.config;
      Floats out(static_cast<std::size_t>(2 * c.d_output));
      policy->window(windows.data(), 2, set.seq, out.data());
      for (std::int64_t i = 0; i < 2; ++i) {
        std::vector<double> expected(static_cast<std::size_t>(set.seq * c.d_output));
        core::policy_reference_window(weights, windows.data() + i * set.seq * c.d_input, set.seq,
                                      expected.data());
        CHECK(test::relative_error(out.data() + i * c.d_output, expected.data() + (set.seq - 1) * c.d_output,
                                   static_cast<std::size_t>(c.d_output)) <= 1e-5);
      }
    }
  }
}

TEST_CASE("the gradient of gated policies around the panels", "[host][policy][gated][gradient]") {
  for (const test::GatedSpec& spec : sizes()) {
    for (const test::PolicyForm& form : test::gated_forms(spec)) {
      CAPTURE(form.name, spec.units);
      for (const bool with_state : {false, true}) {
        const auto c = test::policy_grad_case(form.weights->config, 3, 17, with_state);
        test::check_policy_grad(test::on_host(*form.weights), *form.weights, c, 2e-5);
      }
    }
  }
}

TEST_CASE("the gradient of the recorded gated policies", "[host][policy][gated][gradient][exphil]") {
  if (!test::have_trunks()) return;
  for (const test::RecordedTrunk& set : test::recorded_trunks()) {
    if (set.seq > 20) continue;  // the oracle takes minutes
    CAPTURE(set.name);
    const auto weights = set.load();
    test::PolicyGradCase c = test::policy_grad_case(weights->config, 2, set.seq, false);
    const Floats windows = set.io("windows");
    std::copy_n(windows.begin(), c.frames.size(), c.frames.begin());
    test::check_policy_grad(test::on_host(*weights), *weights, c, 5e-5);
  }
}

TEST_CASE("NaN in one sequence of a gated policy leaves the others the same bits",
          "[host][policy][gated][gradient]") {
  test::GatedSpec spec;
  spec.d_input = 37, spec.units = 17;
  for (const test::PolicyForm& form : test::gated_forms(spec)) {
    CAPTURE(form.name);
    test::check_policy_grad_nan(test::on_host(*form.weights), *form.weights, 20);
  }
}

TEST_CASE("random operations of sessions of gated policies have the bits of replays on one thread",
          "[host][gated][storm][sessions]") {
  test::GatedSpec spec;
  spec.d_input = 9, spec.window = 6;
  const std::int64_t operations = test::session_operations(20'000);
  for (const test::PolicyForm& form : test::gated_forms(spec)) {
    INFO(form.name);
    std::vector<std::shared_ptr<core::Policy>> policies;
    for (auto& weights : test::in_every_precision(*form.weights)) {
      policies.push_back(host::host_backend()->load(weights, {}));
    }
    test::check_random_sessions(policies, operations / 6, 7);
  }
}

}  // namespace exphil
