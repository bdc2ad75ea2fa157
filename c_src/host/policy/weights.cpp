#include "host/policy/weights.hpp"

#include <algorithm>
#include <limits>

#include "core/policy/heads.hpp"

namespace exphil::host {

ScanRule scan_rule_of(const core::PolicyConfig& config) {
  ScanRule rule;
  rule.dim = config.d_inner;
  rule.state = config.d_state;
  // Where the mean of dt is needed, dt is activated before the scan.
  rule.dt_softplus = config.spec.input_dt == core::InputDt::per_channel;
  rule.dt_min = rule.dt_softplus ? config.spec.dt_min : -std::numeric_limits<float>::infinity();
  rule.dt_max = rule.dt_softplus ? config.spec.dt_max : std::numeric_limits<float>::infinity();
  return rule;
}

namespace {

// Floats of the arena; the terms are in the order of the constructor's allocations.
std::int64_t arena_floats(const core::PolicyWeights& weights, const ScanRule& rule) {
  const core::PolicyConfig& c = weights.config;
  const auto packed = [&c](std::int64_t outs, std::int64_t depth) {
    return packed_floats(outs, depth, c.precision);
  };
  const std::int64_t inner = padded(c.d_inner);
  const std::int64_t norm = padded(c.d_model) * (c.spec.norm == core::NormKind::layer ? 2 : 1);
  const std::int64_t layer = norm + 2 * packed(c.d_inner, c.d_model) + (c.d_conv + 1) * inner +
                             packed(c.dt_rank + 2 * c.d_state, c.d_inner) + packed(c.d_inner, c.dt_rank) +
                             panels(c.d_inner) * rule.a_block() + padded(panels(c.d_inner)) + 2 * inner +
                             packed(c.d_model, c.d_inner);
  const std::int64_t width = core::hidden_width(weights.heads);
  const std::int64_t head =
      width > 0 ? packed(width, c.d_model) + packed(c.d_output, width) : packed(c.d_output, c.d_model);
  return packed(c.d_model, c.d_input) + c.n_layer * layer + norm + head;
}

const float* or_null(const std::vector<float>& values, std::int64_t offset = 0) {
  return values.empty() ? nullptr : values.data() + offset;
}

}  // namespace

PackedWeights::PackedWeights(const core::PolicyWeights& weights)
    : config_(weights.config),
      fingerprint_(weights.fingerprint),
      rule_(scan_rule_of(config_)),
      arena_(arena_floats(weights, rule_)) {
  if (config_.spec.input_projection) {
    input_proj_ =
        matrix(weights.input_proj.data(), or_null(weights.input_proj_bias), config_.d_model, config_.d_input);
  }
  layers_.reserve(weights.layers.size());
  for (const core::PolicyLayerWeights& from : weights.layers) layers_.push_back(layer(from));
  if (config_.spec.final_norm) norm_f_ = norm(weights.norm_f, weights.norm_f_bias);
  if (!weights.heads.empty()) {
    pack_heads(weights.heads);
  } else if (!weights.head.empty()) {
    head_ = matrix(weights.head.data(), or_null(weights.head_bias), config_.d_output, config_.d_model);
  }
}

Norm PackedWeights::norm(const std::vector<float>& weight, const std::vector<float>& bias) {
  Norm to;
  to.weight = vector(weight, config_.d_model);
  if (config_.spec.norm == core::NormKind::layer) to.bias = vector(bias, config_.d_model);
  return to;
}

void PackedWeights::pack_heads(const std::vector<core::PolicyHead>& heads) {
  const core::PolicyHead all = core::joined_heads(heads);
  heads_hidden_ = matrix(all.hidden.data(), all.hidden_bias.data(), all.width(), config_.d_model);
  head_ = matrix(all.out.data(), all.out_bias.data(), config_.d_output, all.width());
}

PackedLayer PackedWeights::layer(const core::PolicyLayerWeights& from) {
  const core::PolicyConfig& c = config_;
  PackedLayer to;
  to.norm = norm(from.norm, from.norm_bias);
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
  to.x_proj = matrix(from.x_proj.data(), or_null(from.x_proj_bias), c.dt_rank + 2 * c.d_state, c.d_inner);
  to.dt_proj = matrix(from.dt_proj.data(), nullptr, c.d_inner, c.dt_rank);
  float* a = take(panels(c.d_inner) * rule_.a_block());
  pack_a(rule_, from.a.data(), a);
  to.a = a;
  float* bounds = take(padded(panels(c.d_inner)));
  bounds_of(rule_, a, bounds);
  to.a_bounds = bounds;
  if (!from.d.empty()) to.d = vector(from.d, c.d_inner);
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
  const core::Precision precision = config_.precision;
  return pack_matrix(from, bias, outs, depth, take(packed_floats(outs, depth, precision)), precision);
}

// A vector that is absent from the checkpoint is zero (the arena's initial value).
const float* PackedWeights::vector(const std::vector<float>& from, std::int64_t count) {
  float* to = take(padded(count));
  std::copy(from.begin(), from.end(), to);
  return to;
}

}  // namespace exphil::host
