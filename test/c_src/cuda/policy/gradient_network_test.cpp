// The gradient on CUDA of a network that no trunk makes, against the float64 oracle. And the order of
// launches.
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/gradient.hpp"
#include "cuda/policy/gradient_order.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/made_networks.hpp"
#include "support/policy_grad_checks.hpp"

namespace exphil::test {
namespace {

PolicyGrad on_device(const std::shared_ptr<const core::PolicyWeights>& weights) {
  const auto context = cuda::Context::open(0);
  const cuda::ContextGuard guard(*context);
  const auto gradient = std::make_shared<cuda::PolicyGradient>(context, weights);
  return [context, gradient](const core::PolicySequences& sequences, const float* d_outs,
                             const core::PolicyGradOutputs& outputs) {
    const cuda::ContextGuard current(*context);
    gradient->run(sequences, d_outs, outputs);
  };
}

// Sequences whose inputs are decayed, and others from given states.
void check_odd_network() {
  const auto weights = odd_network();
  const PolicyGrad grad = on_device(weights);
  for (const auto& [seq, with_state] : {std::pair{7, false}, {37, true}}) {
    CAPTURE(seq);
    check_policy_grad(grad, *weights, policy_grad_case(weights->config, 3, seq, with_state));
  }
  check_policy_grad_bits(grad, *weights, policy_grad_case(weights->config, 3, 20, false));
}

TEST_CASE("the gradient of an odd network on an emulated GPU", "[.emulated_network_gradient]") {
  emulate_launches();
  check_odd_network();
}

TEST_CASE("the gradient of an odd network runs without a GPU", "[cuda][policy][gradient][emulated]") {
  require_passed(run_over_emulated("[.emulated_network_gradient]"));
}

TEST_CASE("the gradient of an odd network on the GPU", "[cuda][gpu][policy][gradient]") {
  if (!have_device()) return;
  check_odd_network();
}

TEST_CASE("products that wait for nothing share a launch", "[cuda][policy][gradient]") {
  using Launches = std::vector<std::vector<std::size_t>>;
  CHECK(cuda::forward_launches(odd_network()->network().layers[0]) ==
        Launches{{0}, {1}, {2}, {3}, {4}, {5, 7, 8}, {6}, {9}});
  for (const NamedPolicy& policy : small_policies()) {
    CAPTURE(policy.name);
    const core::Block& layer = policy.weights->network().layers[0];
    const Launches launches = cuda::forward_launches(layer);
    CHECK(launches.size() == layer.size() - 1);
    CHECK(launches[1] == std::vector<std::size_t>{1, 3});  // x and z
  }
}

TEST_CASE("a network whose gradient no kernel takes is refused", "[cuda][policy][gradient]") {
  const auto says = [](const core::Network& network, const char* what) {
    const CaughtError error = error_of([&] { cuda::require_gradient(network); });
    return error.kind == core::ErrorKind::unsupported && error.says(what);
  };
  core::Network network = odd_network()->network();
  cuda::require_gradient(network);
  std::get<core::Product>(network.output[0]).relu = true;
  CHECK(says(network, "relu"));
  network = odd_network()->network();
  std::get<core::Softplus>(network.layers[0][3]).in = std::get<core::Product>(network.layers[0][5]).out;
  CHECK(says(network, "relu"));
  network = odd_network()->network();
  network.layers[1][7] = core::Mean{std::get<core::Product>(network.layers[1][7]).in, {}};
  CHECK(says(network, "softplus"));
  network = odd_network()->network();
  std::get<core::SelectiveScan>(network.layers[0][4]).input_dt = {network.hidden, 0, 1};
  CHECK(says(network, "mean"));
}

}  // namespace
}  // namespace exphil::test
