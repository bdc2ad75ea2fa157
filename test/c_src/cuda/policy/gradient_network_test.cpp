// The gradient on CUDA of networks that no trunk makes, against the float64 oracle: vectors that are read and
// written in parts, gradients that a kernel must add to, a convolution over parts, a relu in a layer, a
// vector that nothing reads. And the order of launches.
#include <algorithm>

#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/gradient.hpp"
#include "cuda/policy/gradient_on_device.hpp"
#include "cuda/policy/gradient_order.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/gated_policy.hpp"
#include "support/made_networks.hpp"

namespace exphil::test {
namespace {

constexpr std::int64_t kWidth = 9, kInner = 7, kState = 3, kTaps = 3;

// A convolution over x, B and C together, as Mamba-2 has it: products write them in other parts than those in
// which the scan reads what the convolution has written, and products read parts of both vectors.
std::shared_ptr<const core::PolicyWeights> joined_convolution() {
  NetworkMaker b(12, 10, kWidth, 6);
  core::Network& n = b.network;
  constexpr std::int64_t kJoined = kInner + 2 * kState;
  const core::VectorId joined = b.vector("joined", kJoined), convolved = b.vector("convolved", kJoined),
                       dt = b.vector("dt", kInner), z = b.vector("z", kInner), y = b.vector("y", kInner),
                       unread = b.vector("unread", 2);
  n.input = {b.product(b.all(n.frame), b.all(n.hidden), true)};
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    core::SelectiveScan scan;
    scan.x = {convolved, 0, kInner}, scan.b = {convolved, kInner, kState};
    scan.c = {convolved, kInner + kState, kState};
    scan.dt = b.all(dt), scan.z = b.all(z), scan.out = b.all(y);
    n.layers.push_back({b.product(b.all(n.hidden), {joined, 0, 4}, true),
                        b.product(b.all(n.hidden), {joined, 4, kJoined - 4}, false),
                        b.product(b.all(n.hidden), b.all(z), true),
                        b.convolution(b.all(joined), b.all(convolved), kTaps, layer),
                        b.product({convolved, 0, kInner}, b.all(dt), false), b.scan(scan, layer, true, false),
                        b.product({joined, 2, 9}, {unread, 0, 1}, false),
                        b.product({convolved, kInner, 2 * kState}, {unread, 1, 1}, true),
                        b.residual(b.all(y))});
  }
  n.output = {b.product(b.all(n.hidden), b.all(n.outs), true)};
  return b.policy();
}

// Sequences whose inputs are decayed, and others from given states.
void check_odd_networks() {
  for (const auto& weights : {odd_network(), joined_convolution()}) {
    CAPTURE(weights->network().vectors[3].name);
    const PolicyGrad grad = gradient_on_device(weights);
    for (const auto& [seq, with_state] : {std::pair{7, false}, {37, true}}) {
      CAPTURE(seq);
      check_policy_grad(grad, *weights, policy_grad_case(weights->config, 3, seq, with_state));
    }
    check_policy_grad_bits(grad, *weights, policy_grad_case(weights->config, 3, 20, false));
  }
}

// Whose large product reads rows that are copied to multiples of 16 bytes, and is left out where nobody asks
// for the outputs.
std::shared_ptr<const core::PolicyWeights> many_outputs() {
  NetworkMaker b(5, 6, kWidth, 520);
  core::Network& n = b.network;
  const core::VectorId y = b.vector("y", kInner);
  n.input = {b.product(b.all(n.frame), b.all(n.hidden), true)};
  n.layers.push_back({b.product(b.all(n.hidden), b.all(y), true), b.residual(b.all(y))});
  n.output = {b.product(b.all(n.hidden), b.all(n.outs), true)};
  return b.policy();
}

void check_many_outputs() {
  const auto weights = many_outputs();
  const PolicyGrad grad = gradient_on_device(weights);
  const PolicyGradCase c = policy_grad_case(weights->config, 2, 257, false);
  check_policy_grad(grad, *weights, c);
  const PolicyGradResult with_outs = run_policy_grad(grad, *weights, c);
  PolicyGradCase other = c;  // memory that another call has left
  for (float& value : other.frames) value = -value;
  run_policy_grad(grad, *weights, other);
  auto alone = core::zeros_of<float>(weights->network());
  core::PolicyGradOutputs outputs;
  outputs.weights = &alone;
  grad(c.sequences(), c.d_outs_f32().data(), outputs);
  for (std::size_t id = 0; id < alone.size(); ++id) CHECK(same_bits(alone[id], with_outs.weights[id]));
}

TEST_CASE("the gradient of odd networks on an emulated GPU", "[.emulated_network_gradient]") {
  emulate_launches();
  check_odd_networks();
  check_many_outputs();
  CHECK(emulated_launches("policy_gradient_copy") > 0);
}

TEST_CASE("the gradient of odd networks runs without a GPU", "[cuda][policy][gradient][emulated]") {
  require_emulated("[.emulated_network_gradient]");
}

TEST_CASE("the gradient of odd networks on the GPU", "[cuda][gpu][policy][gradient]") {
  if (!have_device()) return;
  check_odd_networks();
  check_many_outputs();
}

TEST_CASE("products that wait for nothing share a launch", "[cuda][policy][gradient]") {
  using Launches = std::vector<std::vector<std::size_t>>;
  const auto odd = odd_network();
  CHECK(cuda::forward_launches(odd->network().layers[0]) ==
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
  // What a walk of a cell cannot take: another use of the recalled state, and of the sums.
  GatedSpec spec;
  const core::Network gated = make_gated(spec)->network();
  cuda::require_gradient(gated);
  const auto recall = std::find_if(gated.layers[0].begin(), gated.layers[0].end(), [](const auto& phase) {
    return std::holds_alternative<core::Recall>(phase);
  });
  const auto after = static_cast<std::size_t>(recall - gated.layers[0].begin()) + 1;
  network = gated;
  std::get<core::Product>(network.layers[0][after]).relu = true;
  CHECK(says(network, "recalls"));
  network = gated;
  std::get<core::Copy>(network.layers[1].back()).in = std::get<core::Recall>(*recall).out;
  CHECK(says(network, "recalls"));
  network = gated;
  std::get<core::Copy>(network.layers[1].back()).in = std::get<core::Product>(network.layers[1][after]).out;
  CHECK(says(network, "recalls"));
}

}  // namespace
}  // namespace exphil::test
