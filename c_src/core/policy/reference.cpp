#include "core/policy/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/policy/reference_frame.hpp"
#include "core/policy/reference_phases.hpp"
#include "core/scalar_math.hpp"
#include "kernels/common/gradient_formulas.cuh"

namespace exphil::core {

namespace {

using Doubles = std::vector<double>;
using Math = ScalarMath<double>;

// One block for one frame: an overload of run() for each kind of phase.
template <class T>
class BlockStep {
 public:
  BlockStep(const Network& network, const PolicyValues<T>& weights, PolicyReferenceState& state,
            BlockFrame* frame)
      : n_(network), w_(weights), state_(state), f_(*frame) {}

  // `hidden`: of the block before; receives that of this one.
  void run(const Block& block, Doubles* hidden) {
    f_.vectors.resize(n_.vectors.size());
    f_.at(n_.hidden) = *hidden;
    for (const Phase& phase : block) {
      const StateId id = state_of(phase);
      f_.before.push_back(id == kNone ? Doubles() : Doubles(part(id), part(id) + n_.state(id).size()));
      Doubles& out = f_.at(writes(phase).vector);
      if (writes(phase).vector != n_.hidden)
        out.resize(static_cast<std::size_t>(n_.size_of(writes(phase).vector)));
      const Doubles made = std::visit([this](const auto& p) { return run(p); }, phase);
      // The last phase of a layer adds to hidden, which the gradient needs as it was.
      Doubles& to = writes(phase).vector == n_.hidden ? *hidden : out;
      to.resize(static_cast<std::size_t>(n_.size_of(writes(phase).vector)));
      std::copy(made.begin(), made.end(), to.begin() + writes(phase).first);
    }
  }

 private:
  double* part(StateId id) { return state_.values.data() + n_.state_at(id); }
  const double* in(const Span& span) const { return f_.at(span.vector).data() + span.first; }
  double value(WeightId id, std::int64_t i) const { return value_of(w_, id, i); }
  static Doubles zeros(const Span& span) { return Doubles(static_cast<std::size_t>(span.size)); }

  Doubles run(const Copy& p) {
    Doubles out(in(p.in), in(p.in) + p.in.size);
    for (std::int64_t i = 0; p.adds && i < p.in.size; ++i) out[i] += in(p.out)[i];
    return out;
  }

  Doubles run(const Recall& p) { return Doubles(part(p.state), part(p.state) + p.out.size); }

  Doubles run(const Norm& p) {
    Doubles out = zeros(p.out);
    const std::int64_t size = p.in.size / p.parts;
    for (std::int64_t first = 0; first < p.in.size; first += size) {
      const double* x = in(p.in);
      const NormScale norm = norm_scale(p, x + first);
      for (std::int64_t i = first; i < first + size; ++i) {
        const std::int64_t at = i % (p.in.size / p.repeats);
        out[i] = (x[i] - norm.mean) * norm.scale * value(p.weight, at) + value(p.bias, at);
      }
    }
    return out;
  }

  Doubles run(const Product& p) {
    constexpr std::int64_t kTogether = 8;
    Doubles out = zeros(p.out);
    std::int64_t row = 0;
    for (; row + kTogether <= p.out.size; row += kTogether) put_rows<kTogether>(p, row, &out);
    for (; row < p.out.size; ++row) put_rows<1>(p, row, &out);
    return out;
  }

  // Each row is a sum in the order of its inputs. Several are summed together, because each addition waits
  // for the one before it.
  template <int Rows>
  void put_rows(const Product& p, std::int64_t row, Doubles* out) {
    const double* x = in(p.in);
    const T* weight = values_of(w_, p.weight).data() + (p.first_row + row) * p.in.size;
    double sums[Rows];
    for (int r = 0; r < Rows; ++r) sums[r] = value(p.bias, p.first_row + row + r);
    for (std::int64_t k = 0; k < p.in.size; ++k) {
      for (int r = 0; r < Rows; ++r) sums[r] += static_cast<double>(weight[r * p.in.size + k]) * x[k];
    }
    for (int r = 0; r < Rows; ++r) {
      (*out)[row + r] = p.relu ? std::max(sums[r], 0.0) : p.adds ? in(p.out)[row + r] + sums[r] : sums[r];
    }
  }

  Doubles run(const Convolution& p) {
    Doubles out = zeros(p.out);
    const std::int64_t kept = p.taps - 1;
    for (std::int64_t d = 0; d < p.in.size; ++d) {
      double* past = part(p.state) + d * kept;
      const double x = in(p.in)[d];
      double sum = value(p.bias, d);
      for (std::int64_t k = 0; k < kept; ++k) sum += value(p.weight, d * p.taps + k) * past[k];
      sum += value(p.weight, d * p.taps + kept) * x;
      for (std::int64_t k = 0; k + 1 < kept; ++k) past[k] = past[k + 1];
      if (kept > 0) past[kept - 1] = x;
      out[d] = formulas::silu<Math>(sum);
    }
    return out;
  }

  static double activate(double sum, float lowest, float highest) {
    return std::min(std::max(formulas::softplus<Math>(sum), double{lowest}), double{highest});
  }

  Doubles run(const Softplus& p) {
    Doubles out = zeros(p.out);
    for (std::int64_t d = 0; d < p.in.size; ++d) {
      out[d] = activate(in(p.in)[d] + value(p.bias, d), p.lowest, p.highest);
    }
    return out;
  }

  Doubles run(const Mean& p) {
    Doubles out = zeros(p.out);
    const std::int64_t size = p.in.size / p.out.size;
    for (std::int64_t d = 0; d < p.in.size; ++d) out[d / size] += in(p.in)[d] / static_cast<double>(size);
    return out;
  }

  Doubles run(const Sigmoid& p) {
    Doubles out = zeros(p.out);
    for (std::int64_t d = 0; d < p.in.size; ++d) out[d] = formulas::sigmoid<Math>(in(p.in)[d]);
    return out;
  }

  Doubles run(const Gate& p) {
    Doubles out = zeros(p.out);
    for (std::int64_t d = 0; d < p.in.size; ++d) out[d] = in(p.in)[d] * formulas::silu<Math>(in(p.gate)[d]);
    return out;
  }

  // The phases of reference_phases.hpp.
  template <class P>
  Doubles run(const P& p) {
    Doubles out = zeros(p.out);
    step_phase(p, ReferenceInputs<T>{w_, f_}, state_of(p) == kNone ? nullptr : part(state_of(p)), out.data());
    return out;
  }

  Doubles run(const SelectiveScan& p) {
    Doubles out = zeros(p.out);
    const bool decays = decays_input(p, state_.length);
    for (std::int64_t d = 0; d < p.x.size; ++d) {
      const double x = in(p.x)[d], raw = in(p.dt)[d];
      const double dt = p.activates ? activate(raw + value(p.dt_bias, d), p.lowest, p.highest) : raw;
      const double input = (p.input_dt ? *in(p.input_dt) : dt) * x;
      double y = value(p.d, d) * x;
      for (std::int64_t n = 0; n < p.b.size; ++n) {
        double& h = part(p.state)[d * p.b.size + n];
        const double abar = std::exp(value(p.a, d * p.b.size + n) * dt);
        h = formulas::advance(h, abar, decays ? abar : 1.0, input, in(p.b)[n]);
        y += in(p.c)[n] * h;
      }
      out[d] = y * formulas::silu<Math>(in(p.z)[d]);
    }
    return out;
  }

  Doubles run(const GatedCell& p) {
    Doubles out = zeros(p.out);
    for (std::int64_t unit = 0; unit < p.out.size; ++unit) {
      CellUnit u(p, unit, f_, part(p.state));
      out[unit] = with_cell(
          p.cell, [&u](auto cell) { return formulas::advance_cell<cell(), Math>(u.x, u.h, u.states); });
      u.put(u.states, part(p.state));
    }
    return out;
  }

  const Network& n_;
  const PolicyValues<T>& w_;
  PolicyReferenceState& state_;
  BlockFrame& f_;
};

// Rounds the matrix states as they are kept between frames (core::with_states).
void keep_states(const PolicyConfig& config, PolicyReferenceState* state) {
  const Network& n = config.network;
  for (const Block& layer : n.layers) {
    for (const Phase& phase : layer) {
      if (config.states == Precision::f32 || !has_matrix_state(phase)) continue;
      double* const first = state->values.data() + n.state_at(state_of(phase));
      std::transform(first, first + n.state(state_of(phase)).size(), first, [&](double value) {
        const std::uint32_t bits = stored_state(config.states, static_cast<float>(value));
        return double{stored_value(config.states, bits, 1.0f)};
      });
    }
  }
}

}  // namespace

CellUnit::CellUnit(const GatedCell& cell, std::int64_t unit, const BlockFrame& frame, const double* state)
    : at(unit), units(cell.out.size), rows(formulas::states_of(cell.cell)) {
  const auto value = [&](const Span& gate) {
    return gate ? frame.at(gate.vector)[static_cast<std::size_t>(gate.first + at)] : 0.0;
  };
  for (int g = 0; g < formulas::kMaxGates; ++g) x[g] = value(cell.x[g]), h[g] = value(cell.h[g]);
  for (int s = 0; s < rows; ++s) states[s] = state[s * units + at];
}

void CellUnit::put(const double* values, double* state) const {
  for (int s = 0; s < rows; ++s) state[s * units + at] = values[s];
}

PolicyReferenceState::PolicyReferenceState(const PolicyConfig& config)
    : values(static_cast<std::size_t>(config.state_floats())), length(config.window) {
  const Network& network = config.network;
  for (std::size_t id = 0; id < network.states.size(); ++id) {
    const std::vector<float>& initial = network.states[id].initial;
    std::copy(initial.begin(), initial.end(), values.begin() + network.state_at(static_cast<StateId>(id)));
  }
}

NormScale norm_scale(const Norm& norm, const double* in) {
  const std::int64_t size = norm.in.size / norm.parts;
  const double count = static_cast<double>(size);
  NormScale made;
  double squares = 0;
  for (std::int64_t i = 0; norm.kind == NormKind::layer && i < size; ++i) made.mean += in[i] / count;
  for (std::int64_t i = 0; i < size; ++i) squares += (in[i] - made.mean) * (in[i] - made.mean);
  made.scale = 1.0 / std::sqrt(squares / count + double{norm.epsilon});
  return made;
}

const Block& block_of(const Network& network, std::size_t index) {
  if (index == 0) return network.input;
  return index <= network.layers.size() ? network.layers[index - 1] : network.output;
}

template <class T>
PolicyFrame policy_reference_frame(const PolicyConfig& config, const PolicyValues<T>& weights,
                                   PolicyReferenceState& state, const float* obs) {
  const Network& network = config.network;
  PolicyFrame frame;
  frame.blocks.resize(network.layers.size() + 2);
  Doubles hidden(static_cast<std::size_t>(network.size_of(network.hidden)));
  for (std::size_t i = 0; i < frame.blocks.size(); ++i) {
    BlockFrame& block = frame.blocks[i];
    block.vectors.resize(network.vectors.size());
    if (i == 0) block.at(network.frame).assign(obs, obs + config.d_input);
    BlockStep<T>(network, weights, state, &block).run(block_of(network, i), &hidden);
  }
  frame.out = frame.blocks.back().at(network.outs);
  keep_states(config, &state);
  return frame;
}
template PolicyFrame policy_reference_frame(const PolicyConfig&, const PolicyValues<float>&,
                                            PolicyReferenceState&, const float*);
template PolicyFrame policy_reference_frame(const PolicyConfig&, const PolicyValues<double>&,
                                            PolicyReferenceState&, const float*);

void policy_reference_step(const PolicyWeights& weights, PolicyReferenceState& state, const float* obs,
                           double* out) {
  const PolicyFrame frame = policy_reference_frame(weights.config, weights.values, state, obs);
  std::copy(frame.out.begin(), frame.out.end(), out);
}

void policy_reference_window(const PolicyWeights& weights, const float* frames, std::int64_t seq,
                             double* outs) {
  const PolicyConfig& c = weights.config;
  PolicyReferenceState state(c);
  state.length = seq;
  for (std::int64_t t = 0; t < seq; ++t) {
    policy_reference_step(weights, state, frames + t * c.d_input, outs + t * c.d_output);
  }
}

}  // namespace exphil::core
