// A host policy whose memory runs out at every allocation of every operation.
#include "host/policy/policy.hpp"
#include "support/allocations.hpp"
#include "support/policy.hpp"
#include "support/policy_faults.hpp"

namespace exphil::test {
namespace {

int fail_allocations(const PolicySpec& spec) {
  const auto weights = make_policy(spec);
  const auto make = [&] { return std::shared_ptr<core::Policy>(host::make_policy(*weights, {})); };
  return fail_everywhere(make, [](int n, const std::function<void()>& call) {
    const FailingAllocation failure(n);
    call();
    return failure.happened();
  });
}

}  // namespace

TEST_CASE("a failed allocation leaves every host session as it was", "[policy][faults]") {
  CHECK(fail_allocations({}) > 0);
}

TEST_CASE("a failed allocation leaves the sessions of a policy that threads share as they were",
          "[policy][faults]") {
  PolicySpec large;
  large.d_model = 64, large.d_inner = 320, large.n_layer = 1;
  CHECK(fail_allocations(large) > 0);
}

}  // namespace exphil::test
