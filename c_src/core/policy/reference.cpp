#include "core/policy/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/scalar_math.hpp"
#include "kernels/common/formulas.cuh"

namespace exphil::core {

namespace {

using Vector = std::vector<double>;
using Math = ScalarMath<double>;

// matrix {rows, columns} times vector, plus bias where there is one.
Vector linear(const std::vector<float>& matrix, const std::vector<float>& bias, const Vector& in,
              std::int64_t rows) {
  Vector out(static_cast<std::size_t>(rows));
  for (std::size_t row = 0; row < out.size(); ++row) {
    double sum = bias.empty() ? 0.0 : bias[row];
    for (std::size_t i = 0; i < in.size(); ++i)
      sum += static_cast<double>(matrix[row * in.size() + i]) * in[i];
    out[row] = sum;
  }
  return out;
}

// RMSNorm: in / sqrt(mean(in^2) + epsilon) * weight. LayerNorm: the same of in - mean(in), plus bias.
Vector normalize(const PolicyConfig& config, const Vector& in, const std::vector<float>& weight,
                 const std::vector<float>& bias) {
  const double count = static_cast<double>(in.size());
  double mean = 0, squares = 0;
  if (config.spec.norm == NormKind::layer) {
    for (double value : in) mean += value / count;
  }
  for (double value : in) squares += (value - mean) * (value - mean);
  const double scale = 1.0 / std::sqrt(squares / count + static_cast<double>(config.norm_epsilon));
  Vector out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = (in[i] - mean) * scale * weight[i] + (bias.empty() ? 0.0 : bias[i]);
  }
  return out;
}

// Causal convolution of each channel over its last inputs (`state`, oldest first) and the new one, then silu.
void convolve(const PolicyConfig& config, const PolicyLayerWeights& layer, double* state, Vector* x) {
  const std::int64_t taps = config.d_conv;
  for (std::int64_t d = 0; d < config.d_inner; ++d) {
    double* past = state + d * (taps - 1);
    const float* weight = layer.conv.data() + d * taps;
    double sum = layer.conv_bias.empty() ? 0.0 : layer.conv_bias[d];
    for (std::int64_t k = 0; k + 1 < taps; ++k) sum += weight[k] * past[k];
    sum += weight[taps - 1] * (*x)[d];
    for (std::int64_t k = 0; k + 2 < taps; ++k) past[k] = past[k + 1];
    if (taps > 1) past[taps - 2] = (*x)[d];
    (*x)[d] = formulas::silu<Math>(sum);
  }
}

// dt of every channel: softplus, then clipped.
Vector active_dt(const PolicyConfig& config, const PolicyLayerWeights& layer, const Vector& low_rank) {
  Vector dt = linear(layer.dt_proj, layer.dt_proj_bias, low_rank, config.d_inner);
  const double lowest = config.spec.dt_min, highest = config.spec.dt_max;
  for (double& value : dt) value = std::min(std::max(formulas::softplus<Math>(value), lowest), highest);
  return dt;
}

double mean(const Vector& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// One step of the selective scan, in place: x becomes y, gated by z.
void scan_step(const PolicyConfig& config, const PolicyLayerWeights& layer, bool decays_input, double* h,
               const double* z, Vector* x) {
  const std::int64_t state = config.d_state;
  const Vector projected = linear(layer.x_proj, layer.x_proj_bias, *x, config.dt_rank + 2 * state);
  const Vector dt = active_dt(config, layer, Vector(projected.begin(), projected.begin() + config.dt_rank));
  const bool by_mean = config.spec.input_dt == InputDt::mean;
  const double mean_dt = mean(dt);
  const double* B = projected.data() + config.dt_rank;
  const double* C = B + state;
  for (std::int64_t d = 0; d < config.d_inner; ++d) {
    double y = layer.d.empty() ? 0.0 : static_cast<double>(layer.d[d]) * (*x)[d];
    const double input = (by_mean ? mean_dt : dt[d]) * (*x)[d];
    for (std::int64_t n = 0; n < state; ++n) {
      double& hn = h[d * state + n];
      const double abar = std::exp(static_cast<double>(layer.a[d * state + n]) * dt[d]);
      hn = formulas::advance(hn, abar, decays_input ? abar : 1.0, input, B[n]);
      y += C[n] * hn;
    }
    (*x)[d] = y * formulas::silu<Math>(z[d]);
  }
}

// The outputs of the policy for its final hidden state.
Vector outputs(const PolicyWeights& weights, const Vector& h) {
  if (weights.heads.empty()) {
    return weights.head.empty() ? h : linear(weights.head, weights.head_bias, h, weights.config.d_output);
  }
  Vector all;
  for (const PolicyHead& head : weights.heads) {
    Vector hidden = linear(head.hidden, head.hidden_bias, h, head.width());
    for (double& value : hidden) value = std::max(value, 0.0);
    const Vector out =
        linear(head.out, head.out_bias, hidden, static_cast<std::int64_t>(head.out_bias.size()));
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

}  // namespace

void policy_reference_step(const PolicyWeights& weights, PolicyReferenceState& state, const float* obs,
                           double* out) {
  const PolicyConfig& c = weights.config;
  Vector h(obs, obs + c.d_input);
  if (c.spec.input_projection) h = linear(weights.input_proj, weights.input_proj_bias, h, c.d_model);
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const PolicyLayerWeights& layer = weights.layers[static_cast<std::size_t>(i)];
    const Vector xz = linear(layer.in_proj, layer.in_proj_bias, normalize(c, h, layer.norm, layer.norm_bias),
                             2 * c.d_inner);
    Vector x(xz.begin(), xz.begin() + c.d_inner);
    convolve(c, layer, state.conv.data() + i * c.d_inner * (c.d_conv - 1), &x);
    scan_step(c, layer, state.decays_input, state.ssm.data() + i * c.d_inner * c.d_state,
              xz.data() + c.d_inner, &x);
    const Vector mixed = linear(layer.out_proj, layer.out_proj_bias, x, c.d_model);
    for (std::size_t k = 0; k < h.size(); ++k) h[k] += mixed[k];
  }
  if (c.spec.final_norm) h = normalize(c, h, weights.norm_f, weights.norm_f_bias);
  const Vector answers = outputs(weights, h);
  for (std::size_t k = 0; k < answers.size(); ++k) out[k] = answers[k];
}

void policy_reference_window(const PolicyWeights& weights, const float* frames, std::int64_t seq,
                             double* outs) {
  const PolicyConfig& c = weights.config;
  PolicyReferenceState state(c);
  state.decays_input = c.spec.decays_input(seq);
  for (std::int64_t t = 0; t < seq; ++t) {
    policy_reference_step(weights, state, frames + t * c.d_input, outs + t * c.d_output);
  }
}

}  // namespace exphil::core
