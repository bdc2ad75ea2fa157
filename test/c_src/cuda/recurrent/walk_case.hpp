// Gated recurrences over whole sequences for the tests of cuda/recurrent/walk.hpp: their sizes, inputs, and
// the results of the formulas in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/policy/cells.hpp"
#include "core/scalar_math.hpp"
#include "support/numbers.hpp"

namespace exphil::test {

// gates_first: the sums of a gate are one matrix, U has a row for each sum (a policy's weights). Otherwise a
// frame has the sums of all gates, and U a row for each value of the state (Edifice's gru_scan, lstm_scan).
struct WalkCase {
  formulas::Cell cell = formulas::Cell::gru;
  std::size_t units = 5, sequences = 2, seq = 4;
  bool gates_first = true, starts = true, biased = true;
  std::uint64_t seed = 1;

  std::size_t gates() const { return static_cast<std::size_t>(formulas::gates_of(cell)); }
  std::size_t states() const { return static_cast<std::size_t>(formulas::states_of(cell)); }
  bool recurrent() const { return formulas::recurrent(cell); }
  std::size_t rows() const { return sequences * seq; }
};

// u {gates, units, units}; bias {gates, units}; x, h, d_x, d_h {rows, gates, units}; out, d_out {rows,
// units}; initial, final, d_final, d_initial {states, sequences, units}.
struct WalkInputs {
  std::vector<float> u, bias, x, initial, d_out, d_final;
};
struct WalkResults {
  std::vector<float> out, final, d_x, d_h, d_initial;
};

inline WalkInputs inputs_of(const WalkCase& c) {
  Random random(c.seed);
  const std::size_t state = c.states() * c.sequences * c.units, sums = c.gates() * c.units;
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.units));
  return {random.vector(sums * c.units, -scale, scale), random.vector(sums, -1, 1),
          random.vector(c.rows() * sums, -2, 2),        random.vector(state, -1, 1),
          random.vector(c.rows() * c.units, -1, 1),     random.vector(state, -1, 1)};
}

// The formulas, in double.
class WalkReference {
 public:
  WalkReference(const WalkCase& c, const WalkInputs& inputs) : c_(c), in_(inputs) {}

  std::vector<double> out, final, d_x, d_h, d_initial;

  void run() {
    out.resize(c_.rows() * c_.units), d_x.resize(in_.x.size()), d_h.resize(in_.x.size());
    final.resize(in_.initial.size()), d_initial.resize(in_.initial.size());
    core::with_cell(c_.cell, [this](auto cell) {
      for (std::size_t s = 0; s < c_.sequences; ++s) sequence<cell()>(s);
    });
  }

 private:
  struct Frame {
    std::vector<double> h, before;  // {gates, units}, {states, units}
  };
  std::size_t state_at(std::size_t state, std::size_t sequence) const {
    return (state * c_.sequences + sequence) * c_.units;
  }

  template <formulas::Cell kCell>
  void sequence(std::size_t s) {
    const std::size_t n = c_.units, gates = c_.gates();
    std::vector<double> states(c_.states() * n), d(states.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      states[i] = c_.starts ? in_.initial[state_at(i / n, s) + i % n] : 0.0;
      d[i] = in_.d_final[state_at(i / n, s) + i % n];
    }
    std::vector<Frame> frames(c_.seq);
    for (std::size_t t = 0; t < c_.seq; ++t) {
      frames[t] = {recurrent_sums(states), states};
      for (std::size_t unit = 0; unit < n; ++unit) {
        double x[4] = {}, h[4] = {}, own[2] = {};
        gather(frames[t], s * c_.seq + t, unit, x, h, own);
        out[(s * c_.seq + t) * n + unit] = formulas::advance_cell<kCell, core::ScalarMath<double>>(x, h, own);
        for (std::size_t i = 0; i < c_.states(); ++i) states[i * n + unit] = own[i];
      }
    }
    for (std::size_t i = 0; i < states.size(); ++i) final[state_at(i / n, s) + i % n] = states[i];
    for (std::size_t t = c_.seq; t-- > 0;) {
      const std::size_t row = s * c_.seq + t;
      std::vector<double> d_sums(gates * n);
      for (std::size_t unit = 0; unit < n; ++unit) {
        double x[4] = {}, h[4] = {}, own[2] = {}, dx[4] = {}, dh[4] = {}, d_own[2] = {};
        gather(frames[t], row, unit, x, h, own);
        for (std::size_t i = 0; i < c_.states(); ++i) d_own[i] = d[i * n + unit];
        d_own[0] += in_.d_out[row * n + unit];
        formulas::cell_gradient<kCell, core::ScalarMath<double>>(x, h, own, d_own, dx, dh);
        for (std::size_t i = 0; i < c_.states(); ++i) d[i * n + unit] = d_own[i];
        for (std::size_t g = 0; g < gates; ++g) {
          d_x[(row * gates + g) * n + unit] = dx[g];
          d_h[(row * gates + g) * n + unit] = d_sums[g * n + unit] = dh[g];
        }
      }
      for (std::size_t i = 0; c_.recurrent() && i < d_sums.size(); ++i) {
        for (std::size_t k = 0; k < n; ++k) d[k] += in_.u[i * n + k] * d_sums[i];
      }
    }
    for (std::size_t i = 0; i < d.size(); ++i) d_initial[state_at(i / n, s) + i % n] = d[i];
  }

  std::vector<double> recurrent_sums(const std::vector<double>& states) const {
    std::vector<double> h(c_.gates() * c_.units);
    for (std::size_t i = 0; c_.recurrent() && i < h.size(); ++i) {
      h[i] = c_.biased ? in_.bias[i] : 0.0;
      for (std::size_t k = 0; k < c_.units; ++k) h[i] += in_.u[i * c_.units + k] * states[k];
    }
    return h;
  }

  void gather(const Frame& frame, std::size_t row, std::size_t unit, double* x, double* h,
              double* states) const {
    for (std::size_t g = 0; g < c_.gates(); ++g) {
      x[g] = in_.x[(row * c_.gates() + g) * c_.units + unit], h[g] = frame.h[g * c_.units + unit];
    }
    for (std::size_t i = 0; i < c_.states(); ++i) states[i] = frame.before[i * c_.units + unit];
  }

  const WalkCase& c_;
  const WalkInputs& in_;
};

}  // namespace exphil::test
