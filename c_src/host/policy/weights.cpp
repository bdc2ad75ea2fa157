#include "host/policy/weights.hpp"

#include <algorithm>
#include <limits>

namespace exphil::host {

namespace {

ScanRule rule_of(const core::PolicyConfig& config) {
  ScanRule rule;
  rule.dim = config.d_inner;
  rule.state = config.d_state;
  rule.dt_softplus = true;
  rule.dt_min = -std::numeric_limits<float>::infinity();
  rule.dt_max = std::numeric_limits<float>::infinity();
  return rule;
}

// Floats of the whole arena; the terms are in the order in which the constructor takes them.
std::int64_t arena_floats(const core::PolicyConfig& c, const ScanRule& rule) {
  const std::int64_t inner = padded(c.d_inner), policy = padded(c.d_model);
  const std::int64_t layer = policy + 2 * packed_floats(c.d_inner, c.d_model) + (c.d_conv + 1) * inner +
                             packed_floats(c.dt_rank + 2 * c.d_state, c.d_inner) +
                             packed_floats(c.d_inner, c.dt_rank) + panels(c.d_inner) * rule.a_block() +
                             padded(panels(c.d_inner)) + 2 * inner + packed_floats(c.d_model, c.d_inner);
  return packed_floats(c.d_model, c.d_input) + c.n_layer * layer + policy +
         packed_floats(c.d_output, c.d_model);
}

const float* or_null(const std::vector<float>& values, std::int64_t offset = 0) {
  return values.empty() ? nullptr : values.data() + offset;
}

}  // namespace

PackedWeights::PackedWeights(const core::PolicyWeights& weights)
    : config_(weights.config),
      fingerprint_(weights.fingerprint),
      rule_(rule_of(config_)),
      arena_(arena_floats(config_, rule_)) {
  input_proj_ =
      matrix(weights.input_proj.data(), or_null(weights.input_proj_bias), config_.d_model, config_.d_input);
  layers_.reserve(weights.layers.size());
  for (const core::PolicyLayerWeights& from : weights.layers) layers_.push_back(layer(from));
  norm_f_ = vector(weights.norm_f, config_.d_model);
  head_ = matrix(weights.head.data(), or_null(weights.head_bias), config_.d_output, config_.d_model);
}

PackedLayer PackedWeights::layer(const core::PolicyLayerWeights& from) {
  const core::PolicyConfig& c = config_;
  PackedLayer to;
  to.norm = vector(from.norm, c.d_model);
  to.in_x = matrix(from.in_proj.data(), or_null(from.in_proj_bias), c.d_inner, c.d_model);
  to.in_z = matrix(from.in_proj.data() + c.d_inner * c.d_model, or_null(from.in_proj_bias, c.d_inner),
                   c.d_inner, c.d_model);
  float* conv = take(c.d_conv * padded(c.d_inner));
  for (std::int64_t channel = 0; channel < c.d_inner; ++channel) {
    for (std::int64_t tap = 0; tap < c.d_conv; ++tap) {
      conv[tap * padded(c.d_inner) + channel] = from.conv[static_cast<std::size_t>(channel * c.d_conv + tap)];
    }
  }
  to.conv = conv;
  to.conv_bias = vector(from.conv_bias, c.d_inner);
  to.x_proj = matrix(from.x_proj.data(), nullptr, c.dt_rank + 2 * c.d_state, c.d_inner);
  to.dt_proj = matrix(from.dt_proj.data(), nullptr, c.d_inner, c.dt_rank);
  float* a = take(panels(c.d_inner) * rule_.a_block());
  pack_a(rule_, from.a.data(), a);
  to.a = a;
  float* bounds = take(padded(panels(c.d_inner)));
  bounds_of(rule_, a, bounds);
  to.a_bounds = bounds;
  to.d = vector(from.d, c.d_inner);
  to.dt_bias = vector(from.dt_proj_bias, c.d_inner);
  to.out_proj = matrix(from.out_proj.data(), or_null(from.out_proj_bias), c.d_model, c.d_inner);
  return to;
}

float* PackedWeights::take(std::int64_t floats) {
  float* taken = arena_.data() + used_;
  used_ += floats;
  return taken;
}

PackedMatrix PackedWeights::matrix(const float* from, const float* bias, std::int64_t outs,
                                   std::int64_t depth) {
  return pack_matrix(from, bias, outs, depth, take(packed_floats(outs, depth)));
}

// A vector that the checkpoint leaves out is zeros (the arena's initial value).
const float* PackedWeights::vector(const std::vector<float>& from, std::int64_t count) {
  float* to = take(padded(count));
  std::copy(from.begin(), from.end(), to);
  return to;
}

}  // namespace exphil::host
