#include "core/policy/gradient_reference.hpp"

#include <cmath>
#include <cstddef>

#include "core/policy/reference_frame.hpp"
#include "core/policy/reference_phases.hpp"
#include "core/scalar_math.hpp"
#include "kernels/common/gradient_formulas.cuh"

namespace exphil::core {

namespace {

using Doubles = std::vector<double>;
using Math = ScalarMath<double>;

// What one frame of a block passes back: an overload of back() for each kind of phase. Adds to the gradients
// of weights and of vectors, and turns that of each state part after the frame into that of the part before.
template <class T>
class BlockBack {
 public:
  BlockBack(const Network& network, const PolicyValues<T>& weights, std::int64_t length,
            PolicyValues<double>* d_weights, Doubles* d_state)
      : n_(network), w_(weights), length_(length), dw_(*d_weights), d_state_(*d_state) {}

  // d_hidden: of the vector after the block; receives that before it. Of the input block: that of the frame.
  void run(const Block& block, const BlockFrame& frame, const Doubles* d_outs, Doubles* d_hidden) {
    f_ = &frame;
    d_.assign(n_.vectors.size(), Doubles());
    for (std::size_t i = 0; i < d_.size(); ++i) d_[i].resize(static_cast<std::size_t>(n_.vectors[i].size));
    d_[static_cast<std::size_t>(n_.hidden)] = *d_hidden;
    if (d_outs != nullptr) {  // the output block
      std::fill_n(d_[static_cast<std::size_t>(n_.hidden)].begin(), d_hidden->size(), 0.0);
      d_[static_cast<std::size_t>(n_.outs)] = *d_outs;
    }
    for (std::size_t i = block.size(); i-- > 0;) {
      before_ = frame.before[i].data();
      std::visit([this](const auto& p) { back(p); }, block[i]);
      // What a phase replaces, hidden at the end of a layer, passes nothing back.
      const Span out = writes(block[i]);
      if (!adds(block[i])) std::fill_n(d(out), out.size, 0.0);
    }
    *d_hidden = d_[static_cast<std::size_t>(&block == &n_.input ? n_.frame : n_.hidden)];
  }

 private:
  const double* in(const Span& span) const { return f_->at(span.vector).data() + span.first; }
  double* d(const Span& span) { return d_[static_cast<std::size_t>(span.vector)].data() + span.first; }
  double* d_part(StateId id) { return d_state_.data() + n_.state_at(id); }
  double value(WeightId id, std::int64_t i) const { return value_of(w_, id, i); }
  ReferenceGradients gradients(const Phase& p) {
    return {d_, dw_, state_of(p) == kNone ? nullptr : d_part(state_of(p))};
  }
  void add(WeightId id, std::int64_t i, double value) { ReferenceGradients{d_, dw_}.add(id, i, value); }

  // The phases of reference_phases.hpp.
  template <class P>
  void back(const P& p) {
    phase_back(p, ReferenceInputs<T>{w_, *f_, before_}, gradients(p));
  }

  void back(const Copy& p) {
    for (std::int64_t i = 0; i < p.in.size; ++i) d(p.in)[i] += d(p.out)[i];
  }

  void back(const Recall& p) {
    for (std::int64_t i = 0; i < p.out.size; ++i) d_part(p.state)[i] += d(p.out)[i];
  }

  void back(const GatedCell& p) {
    for (std::int64_t unit = 0; unit < p.out.size; ++unit) {
      const CellUnit u(p, unit, *f_, before_);
      double d_states[2], d_x[formulas::kMaxGates] = {}, d_h[formulas::kMaxGates] = {};
      for (int s = 0; s < u.rows; ++s) d_states[s] = d_part(p.state)[s * u.units + unit];
      d_states[0] += d(p.out)[unit];
      with_cell(p.cell, [&](auto cell) {
        formulas::cell_gradient<cell(), Math>(u.x, u.h, u.states, d_states, d_x, d_h);
      });
      u.put(d_states, d_part(p.state));
      for (int g = 0; g < formulas::gates_of(p.cell); ++g) {
        d(p.x[g])[unit] += d_x[g];
        if (p.h[g]) d(p.h[g])[unit] += d_h[g];
      }
    }
  }

  // With u = (in - mean) scale and g = d_out weight: d_in = scale (g - mean(g) - u mean(g u)); without
  // mean(g) for RMSNorm.
  void back(const Norm& p) {
    const std::int64_t size = p.in.size / p.parts;
    for (std::int64_t first = 0; first < p.in.size; first += size) part_back(p, first, first + size);
  }
  void part_back(const Norm& p, std::int64_t begin, std::int64_t end) {
    const double *x = in(p.in), *dy = d(p.out), count = static_cast<double>(end - begin);
    const NormScale norm = norm_scale(p, x + begin);
    double mean_g = 0, mean_gu = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = i % (p.in.size / p.repeats);
      const double u = (x[i] - norm.mean) * norm.scale, g = dy[i] * value(p.weight, at);
      add(p.weight, at, dy[i] * u);
      add(p.bias, at, dy[i]);
      if (p.kind == NormKind::layer) mean_g += g / count;
      mean_gu += g * u / count;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      const double u = (x[i] - norm.mean) * norm.scale;
      const double weight = value(p.weight, i % (p.in.size / p.repeats));
      d(p.in)[i] += norm.scale * (dy[i] * weight - mean_g - u * mean_gu);
    }
  }

  // The vector that an `adds` product adds to is that before it: its gradient is that after it.
  void back(const Product& p) {
    for (std::int64_t row = 0; row < p.out.size; ++row) {
      const double dy = p.relu && in(p.out)[row] == 0.0 ? 0.0 : d(p.out)[row];
      for (std::int64_t k = 0; k < p.in.size; ++k) {
        const std::int64_t at = (p.first_row + row) * p.in.size + k;
        add(p.weight, at, dy * in(p.in)[k]);
        d(p.in)[k] += value(p.weight, at) * dy;
      }
      add(p.bias, p.first_row + row, dy);
    }
  }

  // An input is read in this frame, and as part of the state in the next taps - 1.
  void back(const Convolution& p) {
    const std::int64_t kept = p.taps - 1;
    for (std::int64_t c = 0; c < p.in.size; ++c) {
      const double *past = before_ + c * kept, x = in(p.in)[c];
      double* const d_past = d_part(p.state) + c * kept;
      double sum = value(p.bias, c) + value(p.weight, c * p.taps + kept) * x;
      for (std::int64_t k = 0; k < kept; ++k) sum += value(p.weight, c * p.taps + k) * past[k];
      const double dv = d(p.out)[c] * formulas::silu_derivative<Math>(sum);
      for (std::int64_t k = 0; k < kept; ++k) add(p.weight, c * p.taps + k, dv * past[k]);
      add(p.weight, c * p.taps + kept, dv * x);
      add(p.bias, c, dv);
      d(p.in)[c] += value(p.weight, c * p.taps + kept) * dv + (kept > 0 ? d_past[kept - 1] : 0.0);
      for (std::int64_t k = kept; k-- > 0;) {
        d_past[k] = value(p.weight, c * p.taps + k) * dv + (k > 0 ? d_past[k - 1] : 0.0);
      }
    }
  }

  double activate_back(double sum, float lowest, float highest, double dy) const {
    return formulas::activate_dt_gradient<Math>(sum, 0.0, true, double{lowest}, double{highest}, dy);
  }

  void back(const Softplus& p) {
    for (std::int64_t i = 0; i < p.in.size; ++i) {
      const double dx = activate_back(in(p.in)[i] + value(p.bias, i), p.lowest, p.highest, d(p.out)[i]);
      d(p.in)[i] += dx;
      add(p.bias, i, dx);
    }
  }

  void back(const Mean& p) {
    const std::int64_t size = p.in.size / p.out.size;
    for (std::int64_t i = 0; i < p.in.size; ++i) d(p.in)[i] += d(p.out)[i / size] / static_cast<double>(size);
  }

  void back(const Sigmoid& p) {
    for (std::int64_t i = 0; i < p.in.size; ++i) {
      const double s = formulas::sigmoid<Math>(in(p.in)[i]);
      d(p.in)[i] += d(p.out)[i] * s * (1.0 - s);
    }
  }

  void back(const Gate& p) {
    for (std::int64_t i = 0; i < p.in.size; ++i) {
      const double z = in(p.gate)[i];
      d(p.gate)[i] += d(p.out)[i] * in(p.in)[i] * formulas::silu_derivative<Math>(z);
      d(p.in)[i] += d(p.out)[i] * formulas::silu<Math>(z);
    }
  }

  void back(const SelectiveScan& p) {
    const bool decays = decays_input(p, length_);
    for (std::int64_t c = 0; c < p.x.size; ++c) {
      const double x = in(p.x)[c], z = in(p.z)[c], raw = in(p.dt)[c] + value(p.dt_bias, c);
      const double dt =
          p.activates ? std::min(std::max(formulas::softplus<Math>(raw), double{p.lowest}), double{p.highest})
                      : raw;
      const double input_dt = p.input_dt ? *in(p.input_dt) : dt, input = input_dt * x;
      const double dy = d(p.out)[c] * formulas::silu<Math>(z);
      double y = value(p.d, c) * x, d_dt = 0, d_input = 0;
      for (std::int64_t n = 0; n < p.b.size; ++n) {
        const std::int64_t at = c * p.b.size + n;
        const double a = value(p.a, at), abar = std::exp(a * dt), gain = decays ? abar : 1.0;
        const double b = in(p.b)[n], h = before_[at];
        const double after = formulas::advance(h, abar, gain, input, b);
        double& dh = d_part(p.state)[at];
        const double dh_after = dh + dy * in(p.c)[n];
        y += in(p.c)[n] * after;
        d(p.c)[n] += dy * after;
        d(p.b)[n] += dh_after * gain * input;
        d_input += dh_after * gain * b;
        const double d_exponent = dh_after * abar * (h + (decays ? b * input : 0.0));
        add(p.a, at, d_exponent * dt);
        d_dt += d_exponent * a;
        dh = dh_after * abar;
      }
      add(p.d, c, dy * x);
      d(p.x)[c] += dy * value(p.d, c) + d_input * input_dt;
      d(p.z)[c] += d(p.out)[c] * y * formulas::silu_derivative<Math>(z);
      (p.input_dt ? *d(p.input_dt) : d_dt) += d_input * x;
      if (p.activates) d_dt = activate_back(raw, p.lowest, p.highest, d_dt);
      d(p.dt)[c] += d_dt;
      add(p.dt_bias, c, d_dt);
    }
  }

  const Network& n_;
  const PolicyValues<T>& w_;
  const std::int64_t length_;
  PolicyValues<double>& dw_;
  Doubles& d_state_;
  const BlockFrame* f_ = nullptr;
  const double* before_ = nullptr;  // the phase's state part before the frame
  std::vector<Doubles> d_;          // by VectorId
};

PolicyReferenceState first_state(const PolicyConfig& config, const PolicySequences& s, std::int64_t b) {
  PolicyReferenceState state(config);
  state.length = s.length(config);
  const std::int64_t floats = config.state_floats();
  if (s.states != nullptr) state.values.assign(s.states + b * floats, s.states + (b + 1) * floats);
  return state;
}

}  // namespace

template <class T>
PolicyReferenceGradient policy_grad_reference(const PolicyConfig& config, const PolicyValues<T>& weights,
                                              const PolicySequences& s, const double* d_outs) {
  const Network& network = config.network;
  PolicyReferenceGradient result;
  result.weights = zeros_of<double>(network);
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
    Doubles d_state(state.values.size());
    BlockBack<T> back(network, weights, s.length(config), &result.weights, &d_state);
    for (std::int64_t t = s.seq; t-- > 0;) {
      const PolicyFrame& frame = frames[static_cast<std::size_t>(t)];
      const double* row = d_outs + (b * s.seq + t) * config.d_output;
      const Doubles d_out(row, row + config.d_output);
      Doubles d_hidden(static_cast<std::size_t>(network.size_of(network.hidden)));
      for (std::size_t i = frame.blocks.size(); i-- > 0;) {
        const bool last = i + 1 == frame.blocks.size();
        back.run(block_of(network, i), frame.blocks[i], last ? &d_out : nullptr, &d_hidden);
      }
      std::copy(d_hidden.begin(), d_hidden.end(), result.frames.begin() + (b * s.seq + t) * config.d_input);
    }
    result.states.insert(result.states.end(), d_state.begin(), d_state.end());
  }
  derive_back(network, weights, &result.weights);
  return result;
}
template PolicyReferenceGradient policy_grad_reference(const PolicyConfig&, const PolicyValues<float>&,
                                                       const PolicySequences&, const double*);
template PolicyReferenceGradient policy_grad_reference(const PolicyConfig&, const PolicyValues<double>&,
                                                       const PolicySequences&, const double*);

}  // namespace exphil::core
