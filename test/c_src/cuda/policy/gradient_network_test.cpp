// The gradient on CUDA of a network that no trunk makes, against the float64 oracle: vectors that are read
// and written in parts, gradients that a kernel must add to, a relu in a layer, a vector that nothing reads.
// And the order of launches.
#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/gradient.hpp"
#include "cuda/policy/gradient_order.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/numbers.hpp"
#include "support/policy_grad_checks.hpp"

namespace exphil::test {
namespace {

using core::Span;
using core::WeightId;

constexpr std::int64_t kWidth = 9, kInner = 7, kState = 3, kTaps = 3, kRelu = 5, kLast = 4;

class OddNetwork {
 public:
  OddNetwork() {
    n_.frame = vector("frame", 10), n_.hidden = vector("hidden", kWidth), n_.outs = vector("outs", 6);
    normed_ = vector("normed", kWidth), joined_ = vector("joined", 3 * kInner + 2 * kState);
    u_ = vector("u", kInner), active_ = vector("active", kInner), relu_ = vector("relu", kRelu);
    unread_ = vector("unread", 2), both_ = vector("both", kInner + kLast);
    // Parts of vectors that are not cut.
    n_.input = {product({n_.frame, 0, 4}, {n_.hidden, 0, 6}, true),
                product({n_.frame, 3, 7}, {n_.hidden, 6, kWidth - 6}, false)};
    for (std::int64_t i = 0; i < 2; ++i) layer(i);
    n_.output = {product({n_.hidden, 2, 5}, n_.all_of(n_.outs), true)};
    core::check(n_);
  }

  const core::Network& network() const { return n_; }
  std::shared_ptr<const core::PolicyWeights> weights() const {
    auto made = std::make_shared<core::PolicyWeights>();
    made->config.d_input = n_.size_of(n_.frame), made->config.d_output = n_.size_of(n_.outs);
    made->config.network = n_;
    made->values = values_;
    core::derive(n_, &made->values);
    return made;
  }

 private:
  core::VectorId vector(const char* name, std::int64_t size) {
    n_.vectors.push_back({name, size});
    return static_cast<core::VectorId>(n_.vectors.size()) - 1;
  }
  WeightId weight(std::int64_t rows, std::int64_t columns) {
    n_.weights.push_back({"weight " + std::to_string(n_.weights.size()), rows, columns});
    values_.push_back(random_.vector(static_cast<std::size_t>(rows * columns), -0.5f, 0.5f));
    return static_cast<WeightId>(n_.weights.size()) - 1;
  }
  core::StateId state(const char* name, std::int64_t layer, std::int64_t columns) {
    n_.states.push_back({name, layer, kInner, columns});
    return static_cast<core::StateId>(n_.states.size()) - 1;
  }
  Span all(core::VectorId id) const { return n_.all_of(id); }
  core::Product product(const Span& in, const Span& out, bool bias) {
    core::Product p{in, out};
    p.weight = weight(out.size, in.size);
    if (bias) p.bias = weight(1, out.size);
    return p;
  }

  core::SelectiveScan scan(std::int64_t index) {
    core::SelectiveScan scan;
    scan.x = all(u_), scan.dt = {joined_, kInner, kInner}, scan.z = {joined_, 2 * kInner, kInner};
    scan.b = {joined_, 3 * kInner, kState}, scan.c = {joined_, 3 * kInner + kState, kState};
    scan.out = {both_, 0, kInner};
    scan.a = weight(kInner, kState), scan.dt_bias = weight(1, kInner);
    const WeightId log = weight(kInner, kState);
    n_.weights[static_cast<std::size_t>(scan.a)].negative_exp_of = log;
    scan.lowest = 0.05f, scan.highest = 2.0f;
    scan.chunk_size = 16, scan.state = state("ssm", index, kState);
    return scan;
  }

  void layer(std::int64_t index) {
    const Span x{joined_, 0, kInner}, z{joined_, 2 * kInner, kInner};
    core::Norm norm{all(n_.hidden), all(normed_)};
    norm.weight = weight(1, kWidth), norm.epsilon = 1e-5f;
    core::Convolution conv{x, all(u_)};
    conv.weight = weight(kInner, kTaps), conv.bias = weight(1, kInner);
    conv.taps = kTaps, conv.state = state("conv", index, kTaps - 1);
    const core::Softplus softplus{all(u_), all(active_), weight(1, kInner), 0.05f, 2.0f};
    core::Product relu = product(all(active_), all(relu_), true);
    relu.relu = true;
    core::Product ends = product(all(both_), all(n_.hidden), true);
    ends.adds = true;
    // `unread` gives x and z gradients before the convolution and the scan do.
    n_.layers.push_back({norm, product(all(normed_), all(joined_), true), conv, softplus, scan(index), relu,
                         product(all(relu_), {both_, kInner, kLast}, false),
                         product(x, {unread_, 0, 1}, true), product(z, {unread_, 1, 1}, false), ends});
  }

  Random random_{11};
  core::Network n_;
  core::PolicyValues<float> values_;
  core::VectorId normed_, joined_, u_, active_, relu_, unread_, both_;
};

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
  const auto weights = OddNetwork().weights();
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
  const OddNetwork odd;
  CHECK(cuda::forward_launches(odd.network().layers[0]) ==
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
  core::Network network = OddNetwork().network();
  cuda::require_gradient(network);
  std::get<core::Product>(network.output[0]).relu = true;
  CHECK(says(network, "relu"));
  network = OddNetwork().network();
  std::get<core::Softplus>(network.layers[0][3]).in = std::get<core::Product>(network.layers[0][5]).out;
  CHECK(says(network, "relu"));
  network = OddNetwork().network();
  network.layers[1][7] = core::Mean{std::get<core::Product>(network.layers[1][7]).in, {}};
  CHECK(says(network, "softplus"));
  network = OddNetwork().network();
  std::get<core::SelectiveScan>(network.layers[0][4]).input_dt = {network.hidden, 0, 1};
  CHECK(says(network, "mean"));
}

}  // namespace
}  // namespace exphil::test
