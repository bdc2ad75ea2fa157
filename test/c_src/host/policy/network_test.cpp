// Networks that no trunk makes on the CPU, against the scalar reference: what the scheduler and the executors
// must run because core/policy/network.hpp allows it.
#include "core/policy/network.hpp"

#include "host/policy/policy.hpp"
#include "host/simd/targets.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/host_gradient.hpp"
#include "support/made_networks.hpp"
#include "support/policy_forms.hpp"

namespace exphil {

TEST_CASE("the CPU runs networks that no trunk makes: steps, batches, prefill, windows",
          "[host][policy][network]") {
  test::for_each_target([&] {
    for (const test::NamedPolicy& made : test::made_networks()) {
      CAPTURE(made.name);
      const auto policy = host::make_policy(*made.weights, {});
      test::check_policy_form(*policy, *made.weights, 70, {1, 3, 5, 70});
    }
  });
}

TEST_CASE("the CPU's gradient of networks that no trunk makes", "[host][policy][gradient][network]") {
  for (const test::NamedPolicy& made : test::made_networks()) {
    CAPTURE(made.name);
    for (const std::int64_t seq : {1, 2, 7, 17, 37}) {
      CAPTURE(seq);
      for (const bool with_state : {false, true}) {
        const auto c = test::policy_grad_case(made.weights->config, 3, seq, with_state);
        test::check_policy_grad(test::on_host(*made.weights), *made.weights, c, 2e-5);
      }
    }
    // More rows than kGradientRows: two groups.
    test::check_policy_grad_bits(test::on_host(*made.weights), *made.weights,
                                 test::policy_grad_case(made.weights->config, 9, 300, true));
  }
}

TEST_CASE("a network whose vectors are cut inside of a panel is refused by the CPU",
          "[host][policy][network]") {
  const auto odd = test::odd_network();
  const auto refused = [](const auto& call) {
    const test::CaughtError error = test::error_of(call);
    return error.kind == core::ErrorKind::internal && error.says("the CPU cannot read the parts");
  };
  CHECK(refused([&] { host::make_policy(*odd, {}); }));
  const auto c = test::policy_grad_case(odd->config, 1, 2, false);
  CHECK(refused([&] { host::policy_grad(*odd, c.sequences(), nullptr, {}); }));
}

}  // namespace exphil
