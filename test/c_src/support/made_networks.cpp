#include "support/made_networks.hpp"

#include <memory>

namespace exphil::test {

using core::Span;
using core::VectorId;
using core::WeightId;

NetworkMaker::NetworkMaker(std::uint64_t seed, std::int64_t d_input, std::int64_t d_hidden,
                           std::int64_t d_output)
    : random_(seed) {
  network.frame = vector("frame", d_input), network.hidden = vector("hidden", d_hidden);
  network.outs = vector("outs", d_output);
}

std::shared_ptr<const core::PolicyWeights> NetworkMaker::policy(std::int64_t window) const {
  core::check(network);
  auto made = std::make_shared<core::PolicyWeights>();
  made->config.trunk = "made";
  made->config.d_input = network.size_of(network.frame),
  made->config.d_output = network.size_of(network.outs);
  made->config.network = network;
  made->config.products = core::products_of(network);
  made->config.window = window;
  made->values = values_;
  core::derive(network, &made->values);
  return made;
}

VectorId NetworkMaker::vector(const char* name, std::int64_t size) {
  network.vectors.push_back({name, size});
  return static_cast<VectorId>(network.vectors.size()) - 1;
}

WeightId NetworkMaker::weight(std::int64_t rows, std::int64_t columns) {
  network.weights.push_back({"weight " + std::to_string(network.weights.size()), rows, columns});
  values_.push_back(random_.vector(static_cast<std::size_t>(rows * columns), -0.5f, 0.5f));
  return static_cast<WeightId>(network.weights.size()) - 1;
}

core::StateId NetworkMaker::state(const char* name, std::int64_t layer, std::int64_t rows,
                                  std::int64_t columns) {
  network.states.push_back({name, layer, rows, columns, {}});
  return static_cast<core::StateId>(network.states.size()) - 1;
}

core::Norm NetworkMaker::norm(const Span& in, const Span& out, core::NormKind kind) {
  core::Norm norm{in, out, kind};
  norm.weight = weight(1, in.size), norm.epsilon = 1e-5f;
  if (kind == core::NormKind::layer) norm.bias = weight(1, in.size);
  return norm;
}

core::Product NetworkMaker::product(const Span& in, const Span& out, bool bias) {
  core::Product product{in, out};
  product.weight = weight(out.size, in.size);
  if (bias) product.bias = weight(1, out.size);
  return product;
}

core::Product NetworkMaker::relu(const Span& in, const Span& out) {
  core::Product relu = product(in, out);
  relu.relu = true;
  return relu;
}

core::Product NetworkMaker::residual(const Span& in) {
  core::Product residual = product(in, all(network.hidden));
  residual.adds = true;
  return residual;
}

core::Convolution NetworkMaker::convolution(const Span& in, const Span& out, std::int64_t taps,
                                            std::int64_t layer, const char* state_name) {
  core::Convolution convolution{in, out};
  convolution.weight = weight(in.size, taps), convolution.bias = weight(1, in.size);
  convolution.taps = taps, convolution.state = state(state_name, layer, in.size, taps - 1);
  return convolution;
}

core::Softplus NetworkMaker::softplus(const Span& in, const Span& out) {
  return {in, out, weight(1, in.size), 0.05f, 2.0f};
}

core::SelectiveScan NetworkMaker::scan(core::SelectiveScan scan, std::int64_t layer, bool bias, bool skip) {
  const std::int64_t channels = scan.x.size, states = scan.b.size;
  scan.a = weight(channels, states);
  if (bias) scan.dt_bias = weight(1, channels);
  if (skip) scan.d = weight(1, channels);
  const WeightId log = weight(channels, states);
  network.weights[static_cast<std::size_t>(scan.a)].negative_exp_of = log;
  scan.lowest = 0.05f, scan.highest = 2.0f;
  scan.state = state("ssm", layer, channels, states);
  return scan;
}

std::shared_ptr<const core::PolicyWeights> odd_network(const OddSizes& sizes) {
  constexpr std::int64_t kState = 3, kRelu = 5, kLast = 4;
  const std::int64_t inner = sizes.inner;
  NetworkMaker m(11, 10, sizes.width, 6);
  core::Network& n = m.network;
  const VectorId normed = m.vector("normed", sizes.width),
                 joined = m.vector("joined", 3 * inner + 2 * kState), u = m.vector("u", inner),
                 active = m.vector("active", inner), relu = m.vector("relu", kRelu),
                 unread = m.vector("unread", sizes.first_unread + 1), both = m.vector("both", inner + kLast);
  n.input = {
      m.product({n.frame, 0, 4}, {n.hidden, 0, sizes.first_hidden}),
      m.product({n.frame, 3, 7}, {n.hidden, sizes.first_hidden, sizes.width - sizes.first_hidden}, false)};
  for (std::int64_t i = 0; i < 2; ++i) {
    const Span x{joined, 0, inner}, z{joined, 2 * inner, inner};
    core::SelectiveScan scan;
    scan.x = m.all(u), scan.dt = {joined, inner, inner}, scan.z = z;
    scan.b = {joined, 3 * inner, kState}, scan.c = {joined, 3 * inner + kState, kState};
    scan.out = {both, 0, inner}, scan.chunk_size = 16;
    // `unread` gives x and z gradients before the convolution and the scan do.
    core::Block layer;
    layer.push_back(m.norm(m.all(n.hidden), m.all(normed)));
    layer.push_back(m.product(m.all(normed), m.all(joined)));
    layer.push_back(m.convolution(x, m.all(u), 3, i));
    layer.push_back(m.softplus(m.all(u), m.all(active)));
    layer.push_back(m.scan(scan, i, true, false));
    layer.push_back(m.relu(m.all(active), m.all(relu)));
    layer.push_back(m.product(m.all(relu), {both, inner, kLast}, false));
    layer.push_back(m.product(x, {unread, 0, sizes.first_unread}));
    layer.push_back(m.product(z, {unread, sizes.first_unread, 1}, false));
    layer.push_back(m.residual(m.all(both)));
    n.layers.push_back(layer);
  }
  n.output = {m.product({n.hidden, 2, 5}, m.all(n.outs))};
  return m.policy();
}

namespace {

// And one output.
std::shared_ptr<const core::PolicyWeights> two_convolutions() {
  NetworkMaker m(21, 6, 18, 1);
  core::Network& n = m.network;
  const VectorId normed = m.vector("normed", 18), x = m.vector("x", 35), u = m.vector("u", 35),
                 v = m.vector("v", 35);
  n.input = {m.product(m.all(n.frame), m.all(n.hidden))};
  for (std::int64_t i = 0; i < 3; ++i) {
    core::Block layer = {m.norm(m.all(n.hidden), m.all(normed), core::NormKind::layer),
                         m.product(m.all(normed), m.all(x), false)};
    layer.push_back(m.convolution(m.all(x), m.all(u), 4, i, "first"));
    layer.push_back(m.convolution(m.all(u), m.all(v), 2, i, "second"));
    layer.push_back(m.residual(m.all(v)));
    n.layers.push_back(layer);
  }
  n.output = {m.product(m.all(n.hidden), m.all(n.outs))};
  return m.policy();
}

// A scan without a convolution, whose dt is activated before it in parts of a vector, and its mean.
std::shared_ptr<const core::PolicyWeights> scan_of_mean() {
  constexpr std::int64_t kInner = 32, kState = 5;
  NetworkMaker m(22, 6, 20, 7);
  core::Network& n = m.network;
  const VectorId normed = m.vector("normed", 20), raw = m.vector("raw", 2 * kInner),
                 dt = m.vector("dt", 2 * kInner), mean = m.vector("mean", 1), bc = m.vector("bc", 2 * kState),
                 z = m.vector("z", kInner), y = m.vector("y", kInner);
  n.input = {m.product(m.all(n.frame), m.all(n.hidden))};
  for (std::int64_t i = 0; i < 2; ++i) {
    core::SelectiveScan scan;
    scan.x = {raw, 0, kInner}, scan.dt = {dt, kInner, kInner}, scan.z = m.all(z), scan.out = m.all(y);
    scan.b = {bc, 0, kState}, scan.c = {bc, kState, kState}, scan.input_dt = m.all(mean);
    scan.activates = false, scan.chunk_size = 9;
    core::Block layer = {m.norm(m.all(n.hidden), m.all(normed)), m.product(m.all(normed), m.all(raw)),
                         m.softplus({raw, kInner, kInner}, {dt, kInner, kInner}),
                         core::Copy{{raw, 0, kInner}, {dt, 0, kInner}},
                         core::Mean{{dt, kInner, kInner}, m.all(mean)}};
    layer.push_back(m.product(m.all(dt), m.all(bc)));
    layer.push_back(m.product(m.all(normed), m.all(z), false));
    layer.push_back(m.scan(scan, i, false, true));
    layer.push_back(m.residual(m.all(y)));
    n.layers.push_back(layer);
  }
  n.output = {m.product(m.all(n.hidden), m.all(n.outs))};
  return m.policy(6);
}

// A norm in the input block, and an output block of three products.
std::shared_ptr<const core::PolicyWeights> no_state() {
  NetworkMaker m(23, 6, 19, 18);
  core::Network& n = m.network;
  const VectorId raw = m.vector("raw", 19), normed = m.vector("normed", 19), wide = m.vector("wide", 40),
                 first = m.vector("first", 24), second = m.vector("second", 9);
  n.input = {m.product(m.all(n.frame), m.all(raw)), m.norm(m.all(raw), m.all(n.hidden))};
  for (std::int64_t i = 0; i < 2; ++i) {
    n.layers.push_back({m.norm(m.all(n.hidden), m.all(normed), core::NormKind::layer),
                        m.relu(m.all(normed), m.all(wide)), m.residual({wide, 3, 30})});
  }
  n.output = {m.relu(m.all(n.hidden), m.all(first)), m.relu(m.all(first), m.all(second)),
              m.product(m.all(second), m.all(n.outs))};
  return m.policy();
}

}  // namespace

std::vector<NamedPolicy> made_networks() {
  return {{"vectors in parts", odd_network(kPanelSizes)},
          {"two convolutions", two_convolutions()},
          {"a scan of a mean", scan_of_mean()},
          {"no state", no_state()}};
}

}  // namespace exphil::test
