#include "core/policy/reference.hpp"

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

Vector rms_norm(const Vector& in, const std::vector<float>& weight, double epsilon) {
  double squares = 0;
  for (double value : in) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(in.size()) + epsilon);
  Vector out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] * scale * weight[i];
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

// One step of the selective scan, in place: x becomes y, gated by z.
void scan_step(const PolicyConfig& config, const PolicyLayerWeights& layer, double* h, const double* z,
               Vector* x) {
  const std::int64_t state = config.d_state;
  const Vector projected = linear(layer.x_proj, {}, *x, config.dt_rank + 2 * state);
  const Vector low_rank(projected.begin(), projected.begin() + config.dt_rank);
  const Vector dt = linear(layer.dt_proj, layer.dt_proj_bias, low_rank, config.d_inner);
  const double* B = projected.data() + config.dt_rank;
  const double* C = B + state;
  for (std::int64_t d = 0; d < config.d_inner; ++d) {
    const double active = formulas::softplus<Math>(dt[d]);
    double y = static_cast<double>(layer.d[d]) * (*x)[d];
    for (std::int64_t n = 0; n < state; ++n) {
      double& hn = h[d * state + n];
      const double abar = std::exp(static_cast<double>(layer.a[d * state + n]) * active);
      hn = formulas::advance(hn, abar, 1.0, active * (*x)[d], B[n]);
      y += C[n] * hn;
    }
    (*x)[d] = y * formulas::silu<Math>(z[d]);
  }
}

}  // namespace

void policy_reference_step(const PolicyWeights& weights, PolicyReferenceState& state, const float* obs,
                           double* out) {
  const PolicyConfig& c = weights.config;
  Vector h = linear(weights.input_proj, weights.input_proj_bias, Vector(obs, obs + c.d_input), c.d_model);
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const PolicyLayerWeights& layer = weights.layers[static_cast<std::size_t>(i)];
    const Vector xz =
        linear(layer.in_proj, layer.in_proj_bias, rms_norm(h, layer.norm, c.norm_epsilon), 2 * c.d_inner);
    Vector x(xz.begin(), xz.begin() + c.d_inner);
    convolve(c, layer, state.conv.data() + i * c.d_inner * (c.d_conv - 1), &x);
    scan_step(c, layer, state.ssm.data() + i * c.d_inner * c.d_state, xz.data() + c.d_inner, &x);
    const Vector mixed = linear(layer.out_proj, layer.out_proj_bias, x, c.d_model);
    for (std::size_t k = 0; k < h.size(); ++k) h[k] += mixed[k];
  }
  const Vector logits =
      linear(weights.head, weights.head_bias, rms_norm(h, weights.norm_f, c.norm_epsilon), c.d_output);
  for (std::size_t k = 0; k < logits.size(); ++k) out[k] = logits[k];
}

}  // namespace exphil::core
