#include "core/ssd/reference.hpp"

#include "core/reference_values.hpp"
#include "core/scalar_math.hpp"

namespace exphil::core {

namespace {

using Id = SsdOperand;
using Math = ScalarMath<double>;

class Walk {
 public:
  explicit Walk(const SsdCall& call) : s_(call.shape) {
    for (const Id id : all_operands<Id>()) {
      const Operand operand = describe(s_, id);
      if (operand.flow == Flow::in) in_[id] = values_of(operand, call.input(id));
    }
    // The state before each step, and after the last.
    states_.resize(static_cast<std::size_t>(s_.batch * s_.heads * (s_.seq + 1) * s_.headdim * s_.state));
    for (const Id id : {Id::y, Id::final_state}) out_[id] = zeros(id);
    each_head([&](std::int64_t b, std::int64_t h) { forward(b, h); });
  }

  const SsdValues& results() const { return out_; }

  SsdValues gradients() {
    const Id all[] = {Id::grad_x, Id::grad_dt,      Id::grad_a,
                      Id::grad_b, Id::grad_c,       Id::grad_d,
                      Id::grad_z, Id::grad_dt_bias, Id::grad_initial_state};
    for (const Id id : all) g_[id] = zeros(id);
    g_[Id::grad_initial_state] = in_[Id::d_final_state];
    each_head([&](std::int64_t b, std::int64_t h) { backward(b, h); });
    for (const auto& [of, gradient] : {std::pair{Id::d, Id::grad_d},
                                       {Id::z, Id::grad_z},
                                       {Id::dt_bias, Id::grad_dt_bias},
                                       {Id::initial_state, Id::grad_initial_state}}) {
      if (!s_.has(of)) g_[gradient].clear();
    }
    return g_;
  }

 private:
  std::vector<double> zeros(Id id) const {
    return std::vector<double>(static_cast<std::size_t>(describe(s_, id).axes.shape().elements("")));
  }
  template <class Use>
  void each_head(const Use& use) const {
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      for (std::int64_t h = 0; h < s_.heads; ++h) use(b, h);
    }
  }

  std::int64_t rate_at(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return (b * s_.seq + t) * s_.heads + h;
  }
  std::int64_t value_at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t p) const {
    return rate_at(b, t, h) * s_.headdim + p;
  }
  std::int64_t key_at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t n) const {
    return ((b * s_.seq + t) * s_.groups + s_.group_of(h)) * s_.state + n;
  }
  std::int64_t state_at(std::int64_t b, std::int64_t h, std::int64_t p, std::int64_t n) const {
    return ((b * s_.heads + h) * s_.headdim + p) * s_.state + n;
  }
  std::int64_t skip_at(std::int64_t h, std::int64_t p) const {
    return s_.skip_of_head ? h : h * s_.headdim + p;
  }
  double& state(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t p, std::int64_t n) {
    return states_[(((b * s_.heads + h) * (s_.seq + 1) + t) * s_.headdim + p) * s_.state + n];
  }
  double active_dt(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return activate_dt<Math>(s_.options, in_[Id::dt][rate_at(b, t, h)], in_[Id::dt_bias][h]);
  }
  // Before the gate.
  double answer(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t p) {
    double y = in_[Id::d][skip_at(h, p)] * in_[Id::x][value_at(b, t, h, p)];
    for (std::int64_t n = 0; n < s_.state; ++n)
      y += state(b, h, t + 1, p, n) * in_[Id::c][key_at(b, t, h, n)];
    return y;
  }

  void forward(std::int64_t b, std::int64_t h) {
    for (std::int64_t p = 0; p < s_.headdim; ++p) {
      for (std::int64_t n = 0; n < s_.state; ++n) {
        state(b, h, 0, p, n) = in_[Id::initial_state][state_at(b, h, p, n)];
        for (std::int64_t t = 0; t < s_.seq; ++t) {
          const double dt = active_dt(b, t, h);
          state(b, h, t + 1, p, n) = std::exp(in_[Id::a][h] * dt) * state(b, h, t, p, n) +
                                     dt * in_[Id::x][value_at(b, t, h, p)] * in_[Id::b][key_at(b, t, h, n)];
        }
        out_[Id::final_state][state_at(b, h, p, n)] = state(b, h, s_.seq, p, n);
      }
      for (std::int64_t t = 0; t < s_.seq; ++t) {
        const std::int64_t at = value_at(b, t, h, p);
        const double gate = s_.has(Id::z) ? formulas::silu<Math>(in_[Id::z][at]) : 1;
        out_[Id::y][at] = answer(b, h, t, p) * gate;
      }
    }
  }

  void backward(std::int64_t b, std::int64_t h) {
    for (std::int64_t t = s_.seq; t-- > 0;) {
      const double dt = active_dt(b, t, h), decay = std::exp(in_[Id::a][h] * dt);
      double d_dt = 0, d_decay = 0;
      for (std::int64_t p = 0; p < s_.headdim; ++p) {
        const std::int64_t at = value_at(b, t, h, p);
        const double x = in_[Id::x][at], dy = gate_back(b, h, t, p);
        double d_input = 0;
        for (std::int64_t n = 0; n < s_.state; ++n) {
          const std::int64_t key = key_at(b, t, h, n);
          // Of the state after the step, and below of that before it.
          double& d_state = g_[Id::grad_initial_state][state_at(b, h, p, n)];
          d_state += dy * in_[Id::c][key];
          g_[Id::grad_c][key] += dy * state(b, h, t + 1, p, n);
          g_[Id::grad_b][key] += d_state * dt * x;
          d_input += d_state * in_[Id::b][key];
          d_decay += d_state * state(b, h, t, p, n);
          d_state *= decay;
        }
        g_[Id::grad_x][at] = d_input * dt + dy * in_[Id::d][skip_at(h, p)];
        g_[Id::grad_d][skip_at(h, p)] += dy * x;
        d_dt += d_input * x;
      }
      g_[Id::grad_a][h] += d_decay * decay * dt;
      const std::int64_t at = rate_at(b, t, h);
      const double d = activate_dt_gradient<Math>(s_.options, in_[Id::dt][at], in_[Id::dt_bias][h],
                                                  d_dt + d_decay * decay * in_[Id::a][h]);
      g_[Id::grad_dt][at] = d;
      g_[Id::grad_dt_bias][h] += d;
    }
  }

  double gate_back(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t p) {
    const std::int64_t at = value_at(b, t, h, p);
    const double dy = in_[Id::dy][at];
    if (!s_.has(Id::z)) return dy;
    const double z = in_[Id::z][at];
    g_[Id::grad_z][at] = dy * answer(b, h, t, p) * formulas::silu_derivative<Math>(z);
    return dy * formulas::silu<Math>(z);
  }

  const SsdShape& s_;
  SsdValues in_, out_, g_;
  std::vector<double> states_;
};

}  // namespace

SsdValues ssd_reference(const SsdCall& call) {
  return Walk(call).results();
}

SsdValues ssd_grad_reference(const SsdCall& call) {
  return Walk(call).gradients();
}

}  // namespace exphil::core
