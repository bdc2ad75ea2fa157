// A host policy whose memory runs out at every allocation of every operation.
#include "core/work/parallel.hpp"
#include "host/policy/policy.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/edifice_writer.hpp"
#include "support/gated_policy.hpp"
#include "support/policy.hpp"
#include "support/policy_faults.hpp"

namespace exphil::test {
namespace {

int fail_allocations(const core::PolicyWeights& weights, std::int64_t window = 0) {
  const auto make = [&] { return std::shared_ptr<core::Policy>(host::make_policy(weights, {})); };
  return fail_everywhere(make, fail_allocation, window);
}

// ExPhil's policy of 81 outputs with its controller.
std::shared_ptr<const core::PolicyWeights> controller() {
  using namespace erlang;
  const Text bytes =
      file_of(full_policy(), config({{"backbone", atom("mamba")}, {"temporal", atom("true")}}));
  const TemporaryFile file(Bytes(bytes.begin(), bytes.end()));
  return core::load_weights(core::Checkpoint::open(file.path()), {});
}

}  // namespace

TEST_CASE("a failed allocation leaves every host session as it was", "[policy][faults]") {
  CHECK(fail_allocations(*make_policy({})) > 0);
}

TEST_CASE("a failed allocation leaves the sessions of a policy that threads share as they were",
          "[policy][faults]") {
  PolicySpec large;
  large.d_model = 64, large.d_inner = 320, large.n_layer = 1;
  CHECK(fail_allocations(*make_policy(large)) > 0);
}

TEST_CASE("a failed allocation leaves every window as it was", "[policy][faults]") {
  CHECK(fail_allocations(*make_policy({}), 6) > 0);
}

TEST_CASE("a failed allocation leaves sessions that act as they were, carried and with a window",
          "[policy][faults]") {
  CHECK(fail_allocations(*controller()) > 0);
  CHECK(fail_allocations(*controller(), 6) > 0);
}

TEST_CASE("a failed allocation leaves sessions of gated policies as they were, carried and with a window",
          "[policy][gated][faults]") {
  for (const PolicyForm& form : gated_forms({})) {
    INFO(form.name);
    CHECK(fail_allocations(*form.weights) > 0);
    CHECK(fail_allocations(*form.weights, 6) > 0);
  }
}

TEST_CASE("steps and prefills of gated policies allocate nothing", "[policy][gated][faults]") {
  core::set_threads(1);
  for (const PolicyForm& form : gated_forms({})) {
    INFO(form.name);
    const auto policy = host::make_policy(*form.weights, {});
    const core::PolicyConfig& c = policy->config();
    const auto state = policy->new_state();
    core::State* const one = state.get();
    constexpr std::int64_t kFrames = 70;
    const std::vector<float> frames(static_cast<std::size_t>(kFrames * c.d_input), 0.5f);
    std::vector<float> outs(static_cast<std::size_t>(kFrames * c.d_output));
    const auto calls = [&] {
      policy->step(&one, 1, frames.data(), outs.data());
      policy->prefill(*state, frames.data(), kFrames, outs.data());
    };
    calls();
    const Allocations counted;
    calls();
    CHECK(counted.count() == 0);
  }
  core::set_threads(0);
}

}  // namespace exphil::test
