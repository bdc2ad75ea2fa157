// Shared by the scalar references of the scan and of its gradient: inputs widened to the type of the
// computation, the rows of B and C, and a solver for small linear systems.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/half.hpp"
#include "core/scalar_math.hpp"
#include "core/scan/call.hpp"

namespace exphil::core {

using formulas::Complex;

template <class T>
using RealOf =
    std::conditional_t<std::is_same_v<T, Complex<double>> || std::is_same_v<T, double>, double, float>;
template <class W>
inline constexpr bool kIsComplex = !std::is_arithmetic_v<W>;

template <class T>
T load_real(const void* data, Dtype dtype, std::int64_t index) {
  switch (dtype) {
    case Dtype::f16:
      return static_cast<T>(f16_to_f32(static_cast<const std::uint16_t*>(data)[index]));
    case Dtype::bf16:
      return static_cast<T>(bf16_to_f32(static_cast<const std::uint16_t*>(data)[index]));
    default:
      return static_cast<T>(static_cast<const float*>(data)[index]);
  }
}

template <class W>
W load(const void* data, Dtype dtype, std::int64_t index) {
  if constexpr (kIsComplex<W>) {
    using T = RealOf<W>;
    const float* pair = static_cast<const float*>(data) + 2 * index;
    return W{static_cast<T>(pair[0]), static_cast<T>(pair[1])};
  } else {
    return load_real<W>(data, dtype, index);
  }
}

// An input widened once, so that the loop itself reads plain W.
template <class W>
std::vector<W> widen(const void* data, Dtype dtype, std::int64_t count) {
  std::vector<W> out(data == nullptr ? 0 : static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = load<W>(data, dtype, static_cast<std::int64_t>(i));
  return out;
}

// An operand of a call, widened; empty where the call has none.
template <class W>
std::vector<W> widen(const ScanCall& call, ScanOperand id) {
  const Operand operand = describe(call.shape, id);
  return widen<W>(call.operands[id], operand.dtype,
                  static_cast<std::int64_t>(operand.bytes() / dtype_size(operand.dtype)));
}

// Solves matrix h = rhs in place (rhs becomes h) by elimination with partial pivoting.
template <class T>
void solve(std::vector<T>* matrix, std::vector<T>* rhs) {
  const std::size_t n = rhs->size();
  std::vector<T>& m = *matrix;
  std::vector<T>& r = *rhs;
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < n; ++i) {
      if (std::abs(m[i * n + k]) > std::abs(m[pivot * n + k])) pivot = i;
    }
    for (std::size_t j = 0; j < n && pivot != k; ++j) std::swap(m[k * n + j], m[pivot * n + j]);
    std::swap(r[k], r[pivot]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const T factor = m[i * n + k] / m[k * n + k];
      for (std::size_t j = k; j < n; ++j) m[i * n + j] -= factor * m[k * n + j];
      r[i] -= factor * r[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) r[k] -= m[k * n + j] * r[j];
    r[k] /= m[k * n + k];
  }
}

// The operands of a call in T (float or double); numbers of A, B, C and h are W: T or Complex<T>.
template <class W>
struct ReferenceOperands {
  using T = RealOf<W>;
  using Math = ScalarMath<T>;

  explicit ReferenceOperands(const ScanCall& call) : p(call.shape) {
    x = widen<T>(call, ScanOperand::x), dt = widen<T>(call, ScanOperand::dt);
    z = widen<T>(call, ScanOperand::z), skip = widen<T>(call, ScanOperand::d);
    dt_bias = widen<T>(call, ScanOperand::dt_bias);
    a = widen<W>(call, ScanOperand::a), b = widen<W>(call, ScanOperand::b);
    c = widen<W>(call, ScanOperand::c), initial_state = widen<W>(call, ScanOperand::initial_state);
  }

  // Index of the first element of the row of B or C for one channel and step.
  std::int64_t projection_row(const ProjectionLayout& layout, std::int64_t batch, std::int64_t t,
                              std::int64_t d) const {
    if (layout.constant) return d * p.state;
    const std::int64_t group = d / (p.dim / layout.groups);
    return ((batch * p.seq + t) * layout.groups + group) * p.state;
  }

  T bias(std::int64_t d) const { return dt_bias.empty() ? T{0} : dt_bias[d]; }
  T active_dt(std::int64_t at, std::int64_t d) const { return activate_dt<Math>(p.options, dt[at], bias(d)); }
  W initial(std::int64_t index) const { return initial_state.empty() ? W{} : initial_state[index]; }

  // Computes the next h of one channel.
  template <formulas::Discretization D>
  void advance(std::int64_t d, T dt, T x, const W* b, W* h) const {
    if (p.full_matrix) {
      advance_full<D>(d, dt, x, b, h);
    } else {
      advance_diagonal<D>(d, dt, x, b, h);
    }
  }

  // <C, h>; with complex states 2 Re <C, h>, since each stands for a conjugate pair.
  T readout(const W* c, const W* h) const {
    T sum = 0;
    for (std::int64_t n = 0; n < p.state; ++n) {
      if constexpr (kIsComplex<W>) {
        sum += 2 * (c[n].re * h[n].re - c[n].im * h[n].im);
      } else {
        sum += c[n] * h[n];
      }
    }
    return sum;
  }

  const ScanShape& p;
  std::vector<T> x, dt, z, dt_bias;
  std::vector<T> skip;  // D
  std::vector<W> a, b, c, initial_state;

 private:
  template <formulas::Discretization D>
  void advance_diagonal(std::int64_t d, T dt, T x, const W* b, W* h) const {
    const W* row = a.data() + d * p.state;
    for (std::int64_t n = 0; n < p.state; ++n) {
      const W w = row[n] * dt;
      const W abar = formulas::decay<D, Math>(w);
      const W gain = formulas::input_gain<D, Math>(w, abar);
      h[n] = formulas::advance(h[n], abar, gain, dt * x, b[n]);
    }
  }

  // (I - dt A/2) h' = (I + dt A/2) h + dt B x
  template <formulas::Discretization D>
  void advance_full(std::int64_t d, T dt, T x, const W* b, W* h) const {
    if constexpr (!kIsComplex<W> && D == formulas::Discretization::bilinear) {
      const std::int64_t n = p.state;
      const T* rows = a.data() + d * n * n;
      std::vector<T> left(static_cast<std::size_t>(n * n)), right(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < n; ++i) {
        right[i] = h[i] + dt * b[i] * x;
        for (std::int64_t j = 0; j < n; ++j) {
          const T half = dt * rows[i * n + j] / 2;
          left[i * n + j] = (i == j ? T{1} : T{0}) - half;
          right[i] += half * h[j];
        }
      }
      solve(&left, &right);
      for (std::int64_t i = 0; i < n; ++i) h[i] = right[i];
    } else {
      fail(ErrorKind::internal, "a", "a full matrix reached a method other than :bilinear");
    }
  }
};

}  // namespace exphil::core
