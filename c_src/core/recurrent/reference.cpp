#include "core/recurrent/reference.hpp"

#include "core/recurrent/cells.hpp"
#include "core/reference_values.hpp"
#include "core/scalar_math.hpp"

namespace exphil::core {

namespace {

using formulas::Cell;
using Id = RecurrentOperand;
using Math = ScalarMath<double>;
using Values = std::vector<double>;

Values read(const RecurrentCall& call, Id id) {
  return values_of(describe(call.shape, id), call.input(id));
}

template <Cell kCell>
class Walk {
 public:
  static constexpr int kGates = formulas::gates_of(kCell), kStates = formulas::states_of(kCell);
  static constexpr bool kDense = formulas::recurrent(kCell);

  explicit Walk(const RecurrentCall& call) : s_(call.shape), call_(call) {
    for (int i = 0; i < s_.row().count(); ++i) x_[i] = read(call, behind(Id::x0, i));
    // The states before each step, and after the last.
    states_[0] = states_[1] = Values(static_cast<std::size_t>(s_.batch * (s_.seq + 1) * s_.hidden));
    const Values h0 = read(call, Id::h0);
    const Values c0 = kStates > 1 ? read(call, Id::c0) : Values();
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      for (std::int64_t unit = 0; unit < s_.hidden; ++unit) {
        states_[0][state_at(b, 0, unit)] = h0[b * s_.hidden + unit];
        if (kStates > 1) states_[1][state_at(b, 0, unit)] = c0[b * s_.hidden + unit];
      }
    }
    each_frame([&](std::int64_t b, std::int64_t t) { advance(b, t); });
  }

  RecurrentValues values() const {
    RecurrentValues out;
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      for (std::int64_t t = 1; t <= s_.seq; ++t) {
        for (std::int64_t unit = 0; unit < s_.hidden; ++unit)
          out.h.push_back(states_[0][state_at(b, t, unit)]);
      }
      for (std::int64_t unit = 0; unit < s_.hidden; ++unit) {
        out.final_h.push_back(states_[0][state_at(b, s_.seq, unit)]);
        if (kStates > 1) out.final_c.push_back(states_[1][state_at(b, s_.seq, unit)]);
      }
    }
    return out;
  }

  RecurrentGradients gradients() {
    for (int i = 0; i < s_.row().count(); ++i) out_.x[i].resize(x_[i].size());
    if (kDense) out_.rh.resize(x_[0].size());
    dh_ = read(call_, Id::dh);
    out_.h0 = read(call_, Id::d_final_h);
    if (kStates > 1) out_.c0 = read(call_, Id::d_final_c);
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      for (std::int64_t t = s_.seq; t-- > 0;) back(b, t);
    }
    return std::move(out_);
  }

 private:
  template <class Use>
  void each_frame(const Use& use) {
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      for (std::int64_t t = 0; t < s_.seq; ++t) use(b, t);
    }
  }
  std::int64_t state_at(std::int64_t b, std::int64_t t, std::int64_t unit) const {
    return (b * (s_.seq + 1) + t) * s_.hidden + unit;
  }
  std::int64_t gate_at(std::int64_t b, std::int64_t t, int gate, std::int64_t unit) const {
    return ((b * s_.seq + t) * kGates + gate) * s_.hidden + unit;
  }
  double& weight(Values& r, std::int64_t from, int gate, std::int64_t unit) const {
    return r[(from * kGates + gate) * s_.hidden + unit];
  }

  struct Unit {
    double x[kGates], h[kGates] = {}, states[kStates];
  };
  Unit unit_at(std::int64_t b, std::int64_t t, std::int64_t unit) {
    Unit u;
    for (int gate = 0; gate < kGates; ++gate) {
      u.x[gate] = kDense ? x_[0][gate_at(b, t, gate, unit)] : x_[gate][(b * s_.seq + t) * s_.hidden + unit];
      if (!kDense) continue;
      for (std::int64_t from = 0; from < s_.hidden; ++from) {
        u.h[gate] += states_[0][state_at(b, t, from)] * weight(x_[1], from, gate, unit);
      }
    }
    for (int i = 0; i < kStates; ++i) u.states[i] = states_[i][state_at(b, t, unit)];
    return u;
  }

  void advance(std::int64_t b, std::int64_t t) {
    for (std::int64_t unit = 0; unit < s_.hidden; ++unit) {
      Unit u = unit_at(b, t, unit);
      formulas::advance_cell<kCell, Math>(u.x, u.h, u.states);
      for (int i = 0; i < kStates; ++i) states_[i][state_at(b, t + 1, unit)] = u.states[i];
    }
  }

  void back(std::int64_t b, std::int64_t t) {
    Values through(static_cast<std::size_t>(s_.hidden));  // what passes through h_(t-1) r
    for (std::int64_t unit = 0; unit < s_.hidden; ++unit) {
      const Unit u = unit_at(b, t, unit);
      double *const d_h = &out_.h0[b * s_.hidden + unit], *d_c = nullptr;
      if (kStates > 1) d_c = &out_.c0[b * s_.hidden + unit];
      double d_states[2] = {*d_h + dh_[(b * s_.seq + t) * s_.hidden + unit], d_c == nullptr ? 0 : *d_c};
      double d_x[kGates], d_sums[kGates] = {};
      formulas::cell_gradient<kCell, Math>(u.x, u.h, u.states, d_states, d_x, d_sums);
      *d_h = d_states[0];
      if (d_c != nullptr) *d_c = d_states[1];
      for (int gate = 0; gate < kGates; ++gate) {
        if (!kDense) {
          out_.x[gate][(b * s_.seq + t) * s_.hidden + unit] = d_x[gate];
          continue;
        }
        out_.x[0][gate_at(b, t, gate, unit)] = d_x[gate];
        out_.rh[gate_at(b, t, gate, unit)] = d_sums[gate];
        for (std::int64_t from = 0; from < s_.hidden; ++from) {
          weight(out_.x[1], from, gate, unit) += states_[0][state_at(b, t, from)] * d_sums[gate];
          through[from] += d_sums[gate] * weight(x_[1], from, gate, unit);
        }
      }
    }
    if (!kDense) return;
    for (std::int64_t unit = 0; unit < s_.hidden; ++unit) out_.h0[b * s_.hidden + unit] += through[unit];
  }

  const RecurrentShape& s_;
  const RecurrentCall& call_;
  Values x_[kMaxRecurrentInputs], states_[2], dh_;
  RecurrentGradients out_;
};

template <class Use>
auto with_cell(const RecurrentShape& shape, Use use) {
  return shape.dense() ? with_dense_cell(shape.cell, use) : with_linear_cell(shape.cell, use);
}

}  // namespace

RecurrentValues recurrent_reference(const RecurrentCall& call) {
  return with_cell(call.shape, [&](auto cell) { return Walk<cell()>(call).values(); });
}

RecurrentGradients recurrent_grad_reference(const RecurrentCall& call) {
  return with_cell(call.shape, [&](auto cell) { return Walk<cell()>(call).gradients(); });
}

}  // namespace exphil::core
