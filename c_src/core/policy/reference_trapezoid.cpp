#include "core/policy/reference_phases.hpp"

#include <algorithm>
#include <cmath>

#include "core/policy/ranks.hpp"
#include "core/scalar_math.hpp"
#include "kernels/common/trapezoid.cuh"

namespace exphil::core {

using Math = ScalarMath<double>;

template <class T>
void step_phase(const Delay& p, const ReferenceInputs<T>& from, double* state, double* out) {
  std::copy_n(state, p.out.size, out);
  std::copy_n(from.in(p.in), p.in.size, state);
}

template <class T>
void phase_back(const Delay& p, const ReferenceInputs<T>&, const ReferenceGradients& to) {
  for (std::int64_t i = 0; i < p.in.size; ++i) {
    to.d(p.in)[i] += to.state[i];
    to.state[i] = to.d(p.out)[i];
  }
}

template <class T>
void step_phase(const Angle& p, const ReferenceInputs<T>& from, double* state, double* out) {
  for (std::int64_t i = 0; i < p.heads() * p.angles(); ++i) {
    const double rate = from.in(p.rate)[i % p.angles()], dt = from.in(p.dt)[i / p.angles()];
    state[i] = formulas::next_angle<Math>(state[i], rate, dt);
    out[2 * i] = std::cos(state[i]), out[2 * i + 1] = std::sin(state[i]);
  }
}

template <class T>
void phase_back(const Angle& p, const ReferenceInputs<T>& from, const ReferenceGradients& to) {
  for (std::int64_t i = 0; i < p.heads() * p.angles(); ++i) {
    const std::int64_t angle = i % p.angles(), head = i / p.angles();
    const double *const turn = from.in(p.out) + 2 * i, *const d_turn = to.d(p.out) + 2 * i;
    to.state[i] += turn[0] * d_turn[1] - turn[1] * d_turn[0];
    const auto g = formulas::angle_gradient<Math>(from.in(p.rate)[angle], from.in(p.dt)[head], to.state[i]);
    to.d(p.rate)[angle] += g.rate;
    to.d(p.dt)[head] += g.dt;
  }
}

template <class T>
void step_phase(const Rotation& p, const ReferenceInputs<T>& from, double*, double* out) {
  for (std::int64_t row = 0; row < p.ranks * p.heads; ++row, out += p.size()) {
    const RotatedRow r(p, row);
    const double* const turn = from.in(p.turn) + r.turn_at;
    for (std::int64_t i = 0; i < p.size(); ++i) {
      out[i] = from.in(p.in)[r.in_at + i] + from.value(p.bias, r.bias_at + i);
    }
    for (std::int64_t j = 0; j < p.angles(); ++j) {
      double &first = out[r.first_of(j)], &second = out[r.second_of(j)];
      const double x = first, y = second;
      first = x * turn[2 * j] - y * turn[2 * j + 1];
      second = x * turn[2 * j + 1] + y * turn[2 * j];
    }
  }
}

// Rotated back is what was rotated.
template <class T>
void phase_back(const Rotation& p, const ReferenceInputs<T>& from, const ReferenceGradients& to) {
  for (std::int64_t row = 0; row < p.ranks * p.heads; ++row) {
    const RotatedRow r(p, row);
    const double *const turn = from.in(p.turn) + r.turn_at, *const out = from.in(p.out) + row * p.size();
    double *const d_turn = to.d(p.turn) + r.turn_at, *const d_out = to.d(p.out) + row * p.size();
    std::vector<double> d(d_out, d_out + p.size());
    for (std::int64_t j = 0; j < p.angles(); ++j) {
      const auto first = static_cast<std::size_t>(r.first_of(j)),
                 second = static_cast<std::size_t>(r.second_of(j));
      const double cosine = turn[2 * j], sine = turn[2 * j + 1], d_x = d[first], d_y = d[second];
      const double x = out[first] * cosine + out[second] * sine, y = out[second] * cosine - out[first] * sine;
      d_turn[2 * j] += d_x * x + d_y * y;
      d_turn[2 * j + 1] += d_y * x - d_x * y;
      d[first] = d_x * cosine + d_y * sine, d[second] = d_y * cosine - d_x * sine;
    }
    for (std::int64_t i = 0; i < p.size(); ++i) {
      to.d(p.in)[r.in_at + i] += d[static_cast<std::size_t>(i)];
      to.add(p.bias, r.bias_at + i, d[static_cast<std::size_t>(i)]);
    }
  }
}

template <class T>
void step_phase(const Trapezoid& p, const ReferenceInputs<T>& from, double*, double* out) {
  const std::int64_t heads = p.dt.size;
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto step =
        formulas::trapezoid_step<Math>(from.in(p.dt)[h], from.in(p.a)[h], from.in(p.mix)[h], double{p.floor});
    out[h] = step.before, out[heads + h] = step.now, out[2 * heads + h] = step.decay;
  }
}

template <class T>
void phase_back(const Trapezoid& p, const ReferenceInputs<T>& from, const ReferenceGradients& to) {
  const std::int64_t heads = p.dt.size;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double* const d = to.d(p.out) + h;
    const formulas::TrapezoidStep<double> of_step{d[0], d[heads], d[2 * heads]};
    const auto g = formulas::trapezoid_gradient<Math>(from.in(p.dt)[h], from.in(p.a)[h], from.in(p.mix)[h],
                                                      double{p.floor}, of_step);
    to.d(p.dt)[h] += g.dt, to.d(p.a)[h] += g.a, to.d(p.mix)[h] += g.mix;
  }
}

template <class T>
void step_phase(const RankScale& p, const ReferenceInputs<T>& from, double*, double* out) {
  const std::int64_t one = p.heads * p.channels();
  for (std::int64_t i = 0; i < p.ranks * one; ++i) {
    out[p.back ? i % one : i] +=
        from.value(p.weight, scale_index(p, i)) * from.in(p.in)[p.back ? i : i % one];
  }
}

template <class T>
void phase_back(const RankScale& p, const ReferenceInputs<T>& from, const ReferenceGradients& to) {
  const std::int64_t one = p.heads * p.channels();
  for (std::int64_t i = 0; i < p.ranks * one; ++i) {
    const std::int64_t at = scale_index(p, i), in = p.back ? i : i % one;
    const double dy = to.d(p.out)[p.back ? i % one : i];
    to.add(p.weight, at, dy * from.in(p.in)[in]);
    to.d(p.in)[in] += dy * from.value(p.weight, at);
  }
}

#define EXPHIL_PHASE(Kind)                                                                         \
  template void step_phase(const Kind&, const ReferenceInputs<float>&, double*, double*);          \
  template void step_phase(const Kind&, const ReferenceInputs<double>&, double*, double*);         \
  template void phase_back(const Kind&, const ReferenceInputs<float>&, const ReferenceGradients&); \
  template void phase_back(const Kind&, const ReferenceInputs<double>&, const ReferenceGradients&);
EXPHIL_PHASE(Delay)
EXPHIL_PHASE(Angle)
EXPHIL_PHASE(Rotation)
EXPHIL_PHASE(Trapezoid)
EXPHIL_PHASE(RankScale)
#undef EXPHIL_PHASE

}  // namespace exphil::core
