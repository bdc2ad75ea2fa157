#include "core/policy/gradient_reference.hpp"

#include <cmath>
#include <cstddef>

#include "core/policy/reference_frame.hpp"
#include "core/scalar_math.hpp"
#include "kernels/common/gradient_formulas.cuh"

namespace exphil::core {

namespace {

using Vector = std::vector<double>;
using Math = ScalarMath<double>;

// What out = matrix in + bias passes back: d_matrix += d_out in^T, d_bias += d_out; returns matrix^T d_out.
template <class T>
Vector linear_back(const std::vector<T>& matrix, const Vector& in, const Vector& d_out, Vector* d_matrix,
                   Vector* d_bias) {
  Vector d_in(in.size());
  for (std::size_t row = 0; row < d_out.size(); ++row) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      (*d_matrix)[row * in.size() + i] += d_out[row] * in[i];
      d_in[i] += double{matrix[row * in.size() + i]} * d_out[row];
    }
    if (!d_bias->empty()) (*d_bias)[row] += d_out[row];
  }
  return d_in;
}

// With u = (in - mean) scale and g = d_out weight: d_in = scale (g - mean(g) - u mean(g u)); without mean(g)
// for RMSNorm.
template <class T>
Vector norm_back(const PolicyConfig& config, const Vector& in, const std::vector<T>& weight,
                 const Vector& d_out, Vector* d_weight, Vector* d_bias) {
  const NormScale norm = norm_scale(config, in);
  const double count = static_cast<double>(in.size());
  double mean_g = 0, mean_gu = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double u = (in[i] - norm.mean) * norm.scale, g = d_out[i] * weight[i];
    (*d_weight)[i] += d_out[i] * u;
    if (!d_bias->empty()) (*d_bias)[i] += d_out[i];
    if (config.spec.norm == NormKind::layer) mean_g += g / count;
    mean_gu += g * u / count;
  }
  Vector d_in(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double u = (in[i] - norm.mean) * norm.scale;
    d_in[i] = norm.scale * (d_out[i] * weight[i] - mean_g - u * mean_gu);
  }
  return d_in;
}

template <class T>
class SequenceBack {
 public:
  SequenceBack(const PolicyConfig& config, const PolicyValues<T>& weights, bool decays_input,
               PolicyValues<double>* gradient)
      : c_(config), w_(weights), g_(*gradient), decays_input_(decays_input) {
    carried_.resize(w_.layers.size());
    for (Carried& carried : carried_) {
      carried.h.resize(static_cast<std::size_t>(c_.d_inner * c_.d_state));
      carried.v.assign(static_cast<std::size_t>(c_.d_conv), Vector(static_cast<std::size_t>(c_.d_inner)));
    }
  }

  // Frames come from the last to the first. Returns the gradient of the observation.
  Vector run(const PolicyFrame& frame, const double* d_out) {
    Vector dh = heads_back(frame, Vector(d_out, d_out + c_.d_output));
    if (c_.spec.final_norm) dh = norm_back(c_, frame.hidden, w_.norm_f, dh, &g_.norm_f, &g_.norm_f_bias);
    for (std::size_t layer = w_.layers.size(); layer-- > 0;) {
      const Vector by_layer = layer_back(layer, frame.layers[layer], dh);
      for (std::size_t i = 0; i < dh.size(); ++i) dh[i] += by_layer[i];
    }
    if (!c_.spec.input_projection) return dh;
    return linear_back(w_.input_proj, frame.obs, dh, &g_.input_proj, &g_.input_proj_bias);
  }

 private:
  // What later frames leave for earlier ones.
  struct Carried {
    Vector h;               // the gradient of the state
    std::vector<Vector> v;  // that of the convolution's sums of this frame and the d_conv - 1 after it
  };

  Vector heads_back(const PolicyFrame& frame, const Vector& d_out) {
    if (w_.heads.empty()) {
      return w_.head.empty() ? d_out : linear_back(w_.head, frame.final, d_out, &g_.head, &g_.head_bias);
    }
    Vector d_final(frame.final.size());
    std::size_t first = 0;
    for (std::size_t i = 0; i < w_.heads.size(); ++i) {
      const std::size_t count = w_.heads[i].out_bias.size();
      const Vector own(d_out.begin() + static_cast<std::ptrdiff_t>(first),
                       d_out.begin() + static_cast<std::ptrdiff_t>(first + count));
      Vector d_hidden =
          linear_back(w_.heads[i].out, frame.head_hidden[i], own, &g_.heads[i].out, &g_.heads[i].out_bias);
      for (std::size_t k = 0; k < d_hidden.size(); ++k) {
        if (frame.head_hidden[i][k] == 0.0) d_hidden[k] = 0.0;
      }
      const Vector d_in = linear_back(w_.heads[i].hidden, frame.final, d_hidden, &g_.heads[i].hidden,
                                      &g_.heads[i].hidden_bias);
      for (std::size_t k = 0; k < d_final.size(); ++k) d_final[k] += d_in[k];
      first += count;
    }
    return d_final;
  }

  Vector layer_back(std::size_t index, const PolicyLayerFrame& f, const Vector& d_out) {
    const PolicyLayerValues<T>& w = w_.layers[index];
    PolicyLayerValues<double>& g = g_.layers[index];
    const Vector d_gated = linear_back(w.out_proj, f.gated, d_out, &g.out_proj, &g.out_proj_bias);
    Vector d_xz(f.x.size() + f.z.size());
    const Vector ds = scan_back(w, f, d_gated, &carried_[index].h, &g, d_xz.data() + f.x.size());
    convolution_back(w, f, ds, &carried_[index].v, &g, d_xz.data());
    const Vector d_normed = linear_back(w.in_proj, f.normed, d_xz, &g.in_proj, &g.in_proj_bias);
    return norm_back(c_, f.in, w.norm, d_normed, &g.norm, &g.norm_bias);
  }

  // Turns dh, the gradient of the state after this frame, into that of the state before it. Returns that of
  // s.
  Vector scan_back(const PolicyLayerValues<T>& w, const PolicyLayerFrame& f, const Vector& d_gated,
                   Vector* dh, PolicyLayerValues<double>* g, double* dz) {
    const auto inner = static_cast<std::size_t>(c_.d_inner), state = static_cast<std::size_t>(c_.d_state);
    const auto rank = static_cast<std::size_t>(c_.dt_rank);
    const bool by_mean = c_.spec.input_dt == InputDt::mean;
    Vector ds(inner), d_dt(inner), d_projected(f.projected.size());
    double d_mean = 0;
    for (std::size_t d = 0; d < inner; ++d) {
      const double dy = d_gated[d] * formulas::silu<Math>(f.z[d]);
      dz[d] = d_gated[d] * f.y[d] * formulas::silu_derivative<Math>(f.z[d]);
      if (!w.d.empty()) {
        g->d[d] += dy * f.s[d];
        ds[d] += dy * w.d[d];
      }
      const double input_dt = by_mean ? f.mean_dt : f.dt[d];
      double d_input = 0;
      for (std::size_t n = 0; n < state; ++n) {
        const std::size_t at = d * state + n;
        const double b = f.projected[rank + n], c = f.projected[rank + state + n];
        const double a = w.a[at], abar = std::exp(a * f.dt[d]), gain = decays_input_ ? abar : 1.0;
        const double dhn = (*dh)[at] + dy * c, input = input_dt * f.s[d];
        d_projected[rank + state + n] += dy * f.h_after[at];
        d_projected[rank + n] += dhn * gain * input;
        d_input += dhn * gain * b;
        const double d_exponent = dhn * abar * (f.h_before[at] + (decays_input_ ? b * input : 0.0));
        g->a[at] += d_exponent * f.dt[d];
        d_dt[d] += d_exponent * a;
        (*dh)[at] = dhn * abar;
      }
      ds[d] += d_input * input_dt;
      (by_mean ? d_mean : d_dt[d]) += d_input * f.s[d];
    }
    if (by_mean) {
      for (double& value : d_dt) value += d_mean / static_cast<double>(inner);
    }
    project_back(w, f, d_dt, &d_projected, g);
    const Vector by_projection = linear_back(w.x_proj, f.s, d_projected, &g->x_proj, &g->x_proj_bias);
    for (std::size_t d = 0; d < inner; ++d) ds[d] += by_projection[d];
    return ds;
  }

  // Through clip, softplus and dt_proj into the first dt_rank of d_projected.
  void project_back(const PolicyLayerValues<T>& w, const PolicyLayerFrame& f, Vector d_dt,
                    Vector* d_projected, PolicyLayerValues<double>* g) {
    for (std::size_t d = 0; d < d_dt.size(); ++d) {
      d_dt[d] = formulas::activate_dt_gradient<Math>(f.dt_sum[d], 0.0, true, double{c_.spec.dt_min},
                                                     double{c_.spec.dt_max}, d_dt[d]);
    }
    const Vector low_rank(f.projected.begin(), f.projected.begin() + c_.dt_rank);
    const Vector d_low = linear_back(w.dt_proj, low_rank, d_dt, &g->dt_proj, &g->dt_proj_bias);
    for (std::size_t r = 0; r < d_low.size(); ++r) (*d_projected)[r] += d_low[r];
  }

  // x of this frame is read by the convolution here and by those of the next d_conv - 1 frames.
  void convolution_back(const PolicyLayerValues<T>& w, const PolicyLayerFrame& f, const Vector& ds,
                        std::vector<Vector>* dv, PolicyLayerValues<double>* g, double* dx) {
    const auto inner = static_cast<std::size_t>(c_.d_inner), taps = static_cast<std::size_t>(c_.d_conv);
    dv->pop_back();
    dv->insert(dv->begin(), Vector(inner));
    for (std::size_t d = 0; d < inner; ++d) {
      const double dv_d = (*dv)[0][d] = ds[d] * formulas::silu_derivative<Math>(f.v[d]);
      for (std::size_t k = 0; k + 1 < taps; ++k) g->conv[d * taps + k] += dv_d * f.past[d * (taps - 1) + k];
      g->conv[d * taps + taps - 1] += dv_d * f.x[d];
      if (!g->conv_bias.empty()) g->conv_bias[d] += dv_d;
      dx[d] = 0;
      for (std::size_t later = 0; later < taps; ++later) {
        dx[d] += double{w.conv[d * taps + taps - 1 - later]} * (*dv)[later][d];
      }
    }
  }

  const PolicyConfig& c_;
  const PolicyValues<T>& w_;
  PolicyValues<double>& g_;
  const bool decays_input_;
  std::vector<Carried> carried_;
};

// The state of one sequence before its first frame.
PolicyReferenceState first_state(const PolicyConfig& config, const PolicySequences& s, std::int64_t b) {
  PolicyReferenceState state(config);
  state.decays_input = s.decays_input(config.spec);
  if (s.ssm == nullptr) return state;
  state.ssm.assign(s.ssm + b * config.ssm_floats(), s.ssm + (b + 1) * config.ssm_floats());
  state.conv.assign(s.conv + b * config.conv_floats(), s.conv + (b + 1) * config.conv_floats());
  return state;
}

}  // namespace

template <class T>
PolicyReferenceGradient policy_grad_reference(const PolicyConfig& config, const PolicyValues<T>& weights,
                                              const PolicySequences& s, const double* d_outs) {
  PolicyReferenceGradient result;
  result.weights = zeros_like<double>(weights);
  result.frames.resize(static_cast<std::size_t>(s.batch * s.seq * config.d_input));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    PolicyReferenceState state = first_state(config, s, b);
    std::vector<PolicyFrame> frames;
    for (std::int64_t t = 0; t < s.seq; ++t) {
      const float* obs = s.frames + (b * s.seq + t) * config.d_input;
      frames.push_back(policy_reference_frame(config, weights, state, obs));
      result.outs.insert(result.outs.end(), frames.back().out.begin(), frames.back().out.end());
      if (d_outs == nullptr) frames.clear();
    }
    if (d_outs == nullptr) continue;
    SequenceBack<T> back(config, weights, s.decays_input(config.spec), &result.weights);
    for (std::int64_t t = s.seq; t-- > 0;) {
      const std::int64_t row = b * s.seq + t;
      const Vector d_obs = back.run(frames[static_cast<std::size_t>(t)], d_outs + row * config.d_output);
      std::copy(d_obs.begin(), d_obs.end(), result.frames.begin() + row * config.d_input);
    }
  }
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const PolicyLayerValues<T>& w = weights.layers[i];
    PolicyLayerValues<double>& g = result.weights.layers[i];
    for (std::size_t k = 0; k < g.a_log.size(); ++k) g.a_log[k] = g.a[k] * w.a[k];  // A = -exp(a_log)
  }
  return result;
}
template PolicyReferenceGradient policy_grad_reference(const PolicyConfig&, const PolicyValues<float>&,
                                                       const PolicySequences&, const double*);
template PolicyReferenceGradient policy_grad_reference(const PolicyConfig&, const PolicyValues<double>&,
                                                       const PolicySequences&, const double*);

}  // namespace exphil::core
