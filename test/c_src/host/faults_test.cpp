// The host backend whose memory runs out at every allocation of every operation. Those of policies are in
// host/policy/faults_test.cpp.
#include "support/faults.hpp"
#include "core/trunk/load.hpp"
#include "host/backend.hpp"
#include "host/policy/gradient.hpp"
#include "support/catch.hpp"
#include "support/policy.hpp"
#include "support/policy_grad_case.hpp"

namespace exphil::test {

TEST_CASE("a failed allocation is an error of every host operation, and the next call is right",
          "[host][faults]") {
  const auto backend = host::host_backend();
  const std::vector<core::AssociativeOp> ops = {core::AssociativeOp::cumsum, core::AssociativeOp::cumprod,
                                                core::AssociativeOp::cummax, core::AssociativeOp::cummin,
                                                core::AssociativeOp::linear_recurrence};
  fail_operations(backend_operations(backend, ops), fail_allocation, [] {});
  // So many channels that several threads share an operation.
  fail_operations(backend_operations(backend, ops, 256), fail_allocation, [] {});
  fail_operations({load_of_policy(backend)}, fail_allocation, [] {});
}

TEST_CASE("a failed allocation is an error of a policy's gradient, and the next call is right",
          "[host][policy][faults]") {
  const auto weights = make_policy({});
  const PolicyGradCase problem = policy_grad_case(weights->config, 2, 9, true);
  const std::vector<float> d_outs = problem.d_outs_f32();
  const std::size_t frames = problem.frames.size() * sizeof(float);
  const Operation gradient = {
      "gradient of a policy", {std::vector<std::uint8_t>(frames), {}}, [&](Operation::Results& out) {
        auto by_weights = core::zeros_of<float>(weights->network());
        core::PolicyGradOutputs outputs;
        outputs.weights = &by_weights;
        outputs.frames = reinterpret_cast<float*>(out[0].data());
        host::policy_grad(*weights, problem.sequences(), d_outs.data(), outputs);
        out[1].clear();
        for (const std::vector<float>& values : by_weights) {
          const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
          out[1].insert(out[1].end(), bytes, bytes + values.size() * sizeof(float));
        }
      }};
  fail_operations({gradient}, fail_allocation, [] {});
}

}  // namespace exphil::test
