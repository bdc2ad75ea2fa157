#include "core/policy/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/policy/reference_frame.hpp"
#include "core/scalar_math.hpp"
#include "kernels/common/formulas.cuh"

namespace exphil::core {

namespace {

using Vector = std::vector<double>;
using Math = ScalarMath<double>;

// matrix {rows, columns} times vector, plus bias where there is one.
template <class T>
Vector linear(const std::vector<T>& matrix, const std::vector<T>& bias, const Vector& in, std::int64_t rows) {
  Vector out(static_cast<std::size_t>(rows));
  for (std::size_t row = 0; row < out.size(); ++row) {
    double sum = bias.empty() ? 0.0 : double{bias[row]};
    for (std::size_t i = 0; i < in.size(); ++i) sum += double{matrix[row * in.size() + i]} * in[i];
    out[row] = sum;
  }
  return out;
}

// RMSNorm: in / sqrt(mean(in^2) + epsilon) * weight. LayerNorm: the same of in - mean(in), plus bias.
template <class T>
Vector normalize(const PolicyConfig& config, const Vector& in, const std::vector<T>& weight,
                 const std::vector<T>& bias) {
  const NormScale norm = norm_scale(config, in);
  Vector out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = (in[i] - norm.mean) * norm.scale * weight[i] + (bias.empty() ? 0.0 : double{bias[i]});
  }
  return out;
}

// Causal convolution of each channel over its last inputs (`state`, oldest first) and the new one, then silu.
template <class T>
void convolve(const PolicyConfig& config, const PolicyLayerValues<T>& layer, double* state,
              PolicyLayerFrame* f) {
  const std::int64_t taps = config.d_conv;
  f->past.assign(state, state + config.d_inner * (taps - 1));
  for (std::int64_t d = 0; d < config.d_inner; ++d) {
    double* past = state + d * (taps - 1);
    const T* weight = layer.conv.data() + d * taps;
    double sum = layer.conv_bias.empty() ? 0.0 : double{layer.conv_bias[d]};
    for (std::int64_t k = 0; k + 1 < taps; ++k) sum += weight[k] * past[k];
    sum += weight[taps - 1] * f->x[d];
    for (std::int64_t k = 0; k + 2 < taps; ++k) past[k] = past[k + 1];
    if (taps > 1) past[taps - 2] = f->x[d];
    f->v.push_back(sum);
    f->s.push_back(formulas::silu<Math>(sum));
  }
}

double mean(const Vector& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// dt of every channel: softplus, then clipped.
template <class T>
void activate_dt(const PolicyConfig& config, const PolicyLayerValues<T>& layer, PolicyLayerFrame* f) {
  const Vector low_rank(f->projected.begin(), f->projected.begin() + config.dt_rank);
  f->dt_sum = linear(layer.dt_proj, layer.dt_proj_bias, low_rank, config.d_inner);
  const double lowest = config.spec.dt_min, highest = config.spec.dt_max;
  for (double sum : f->dt_sum) {
    f->dt.push_back(std::min(std::max(formulas::softplus<Math>(sum), lowest), highest));
  }
  f->mean_dt = mean(f->dt);
}

// One step of the selective scan, gated by z.
template <class T>
void scan_step(const PolicyConfig& config, const PolicyLayerValues<T>& layer, bool decays_input, double* h,
               PolicyLayerFrame* f) {
  const std::int64_t state = config.d_state;
  f->projected = linear(layer.x_proj, layer.x_proj_bias, f->s, config.dt_rank + 2 * state);
  activate_dt(config, layer, f);
  f->h_before.assign(h, h + config.d_inner * state);
  const bool by_mean = config.spec.input_dt == InputDt::mean;
  const double* B = f->projected.data() + config.dt_rank;
  const double* C = B + state;
  for (std::int64_t d = 0; d < config.d_inner; ++d) {
    double y = layer.d.empty() ? 0.0 : double{layer.d[d]} * f->s[d];
    const double input = (by_mean ? f->mean_dt : f->dt[d]) * f->s[d];
    for (std::int64_t n = 0; n < state; ++n) {
      double& hn = h[d * state + n];
      const double abar = std::exp(double{layer.a[d * state + n]} * f->dt[d]);
      hn = formulas::advance(hn, abar, decays_input ? abar : 1.0, input, B[n]);
      y += C[n] * hn;
    }
    f->y.push_back(y);
    f->gated.push_back(y * formulas::silu<Math>(f->z[d]));
  }
  f->h_after.assign(h, h + config.d_inner * state);
}

// The outputs of the policy for its final hidden state.
template <class T>
void answer(const PolicyConfig& config, const PolicyValues<T>& weights, PolicyFrame* frame) {
  const Vector& h = frame->final;
  if (weights.heads.empty()) {
    frame->out = weights.head.empty() ? h : linear(weights.head, weights.head_bias, h, config.d_output);
  }
  for (const PolicyHeadValues<T>& head : weights.heads) {
    Vector hidden = linear(head.hidden, head.hidden_bias, h, head.width());
    for (double& value : hidden) value = std::max(value, 0.0);
    const Vector out =
        linear(head.out, head.out_bias, hidden, static_cast<std::int64_t>(head.out_bias.size()));
    frame->out.insert(frame->out.end(), out.begin(), out.end());
    frame->head_hidden.push_back(std::move(hidden));
  }
}

}  // namespace

NormScale norm_scale(const PolicyConfig& config, const Vector& in) {
  const double count = static_cast<double>(in.size());
  NormScale norm;
  double squares = 0;
  if (config.spec.norm == NormKind::layer) {
    for (double value : in) norm.mean += value / count;
  }
  for (double value : in) squares += (value - norm.mean) * (value - norm.mean);
  norm.scale = 1.0 / std::sqrt(squares / count + double{config.norm_epsilon});
  return norm;
}

template <class T>
PolicyFrame policy_reference_frame(const PolicyConfig& c, const PolicyValues<T>& weights,
                                   PolicyReferenceState& state, const float* obs) {
  PolicyFrame frame;
  frame.obs.assign(obs, obs + c.d_input);
  Vector h = frame.obs;
  if (c.spec.input_projection) h = linear(weights.input_proj, weights.input_proj_bias, h, c.d_model);
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const PolicyLayerValues<T>& layer = weights.layers[static_cast<std::size_t>(i)];
    PolicyLayerFrame f;
    f.in = h;
    f.normed = normalize(c, h, layer.norm, layer.norm_bias);
    const Vector xz = linear(layer.in_proj, layer.in_proj_bias, f.normed, 2 * c.d_inner);
    f.x.assign(xz.begin(), xz.begin() + c.d_inner);
    f.z.assign(xz.begin() + c.d_inner, xz.end());
    convolve(c, layer, state.conv.data() + i * c.d_inner * (c.d_conv - 1), &f);
    scan_step(c, layer, state.decays_input, state.ssm.data() + i * c.d_inner * c.d_state, &f);
    const Vector mixed = linear(layer.out_proj, layer.out_proj_bias, f.gated, c.d_model);
    for (std::size_t k = 0; k < h.size(); ++k) h[k] += mixed[k];
    frame.layers.push_back(std::move(f));
  }
  frame.hidden = h;
  frame.final = c.spec.final_norm ? normalize(c, h, weights.norm_f, weights.norm_f_bias) : h;
  answer(c, weights, &frame);
  return frame;
}
template PolicyFrame policy_reference_frame(const PolicyConfig&, const PolicyValues<float>&,
                                            PolicyReferenceState&, const float*);
template PolicyFrame policy_reference_frame(const PolicyConfig&, const PolicyValues<double>&,
                                            PolicyReferenceState&, const float*);

void policy_reference_step(const PolicyWeights& weights, PolicyReferenceState& state, const float* obs,
                           double* out) {
  const PolicyFrame frame = policy_reference_frame(weights.config, weights, state, obs);
  std::copy(frame.out.begin(), frame.out.end(), out);
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
