#include "core/scan/reference.hpp"

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/half.hpp"
#include "core/scalar_math.hpp"

namespace exphil::core {

namespace {

using formulas::Complex;
using formulas::Discretization;

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

// What one pass over time writes; null where not asked for. y may be of the problem's own dtype.
template <class T>
struct Sinks {
  void* y = nullptr;
  Dtype y_dtype = Dtype::f64;
  T* final_state = nullptr;
  T* states = nullptr;

  void put_y(std::int64_t index, T value) const {
    switch (y_dtype) {
      case Dtype::f64:
        static_cast<double*>(y)[index] = static_cast<double>(value);
        break;
      case Dtype::f16:
        static_cast<std::uint16_t*>(y)[index] = f32_to_f16(static_cast<float>(value));
        break;
      case Dtype::bf16:
        static_cast<std::uint16_t*>(y)[index] = f32_to_bf16(static_cast<float>(value));
        break;
      default:
        static_cast<float*>(y)[index] = static_cast<float>(value);
    }
  }
};

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

template <Discretization D, class W>
class Loop {
 public:
  using T = RealOf<W>;
  using Math = ScalarMath<T>;

  explicit Loop(const ScanProblem& problem) : p_(problem) {
    const std::int64_t streams = p_.batch * p_.seq * p_.dim;
    const Dtype b_dtype = p_.complex ? Dtype::c64 : p_.dtype;
    x_ = widen<T>(p_.x, p_.dtype, streams);
    dt_ = widen<T>(p_.dt, p_.dtype, streams);
    z_ = widen<T>(p_.z, p_.dtype, streams);
    b_ = widen<W>(p_.b, b_dtype, projection_size(p_.b_layout));
    c_ = widen<W>(p_.c, b_dtype, projection_size(p_.c_layout));
    a_ = widen<W>(p_.a, Dtype::f32, p_.dim * p_.state * (p_.full_matrix ? p_.state : 1));
  }

  void run(bool reverse, const Sinks<T>& sinks) const {
    std::vector<W> h(static_cast<std::size_t>(p_.dim * p_.state));
    for (std::int64_t batch = 0; batch < p_.batch; ++batch) {
      begin(batch, &h);
      for (std::int64_t i = 0; i < p_.seq; ++i) {
        const std::int64_t t = reverse ? p_.seq - 1 - i : i;
        for (std::int64_t d = 0; d < p_.dim; ++d) step(batch, t, d, h.data() + d * p_.state, sinks);
        const std::int64_t row = (batch * p_.seq + t) * p_.dim * p_.state;
        if (sinks.states != nullptr) store(h, sinks.states, row);
      }
      if (sinks.final_state != nullptr) store(h, sinks.final_state, batch * p_.dim * p_.state);
    }
  }

 private:
  std::int64_t projection_size(const ProjectionLayout& layout) const {
    if (layout.constant) return p_.dim * p_.state;
    return p_.batch * p_.seq * layout.groups * p_.state;
  }

  std::int64_t projection_row(const ProjectionLayout& layout, std::int64_t batch, std::int64_t t,
                              std::int64_t d) const {
    if (layout.constant) return d * p_.state;
    const std::int64_t group = d / (p_.dim / layout.groups);
    return ((batch * p_.seq + t) * layout.groups + group) * p_.state;
  }

  void begin(std::int64_t batch, std::vector<W>* h) const {
    const std::int64_t count = p_.dim * p_.state;
    for (std::int64_t i = 0; i < count; ++i) {
      (*h)[i] = p_.initial_state == nullptr ? W{} : load<W>(p_.initial_state, Dtype::f32, batch * count + i);
    }
  }

  static void store(const std::vector<W>& h, T* to, std::int64_t first) {
    for (std::size_t i = 0; i < h.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(first) + i;
      if constexpr (kIsComplex<W>) {
        to[2 * at] = h[i].re;
        to[2 * at + 1] = h[i].im;
      } else {
        to[at] = h[i];
      }
    }
  }

  void step(std::int64_t batch, std::int64_t t, std::int64_t d, W* h, const Sinks<T>& sinks) const {
    const std::int64_t at = (batch * p_.seq + t) * p_.dim + d;
    const T bias = p_.dt_bias == nullptr ? T{0} : static_cast<T>(p_.dt_bias[d]);
    const T dt =
        formulas::activate_dt<Math>(dt_[at], bias, p_.options.dt_softplus, static_cast<T>(p_.options.dt_min),
                                    static_cast<T>(p_.options.dt_max));
    const W* b = b_.data() + projection_row(p_.b_layout, batch, t, d);
    const W* c = c_.data() + projection_row(p_.c_layout, batch, t, d);
    if (p_.full_matrix) {
      advance_full(d, dt, x_[at], b, h);
    } else {
      advance_diagonal(d, dt, x_[at], b, h);
    }
    T y = readout(c, h);
    if (p_.d != nullptr) y += static_cast<T>(p_.d[d]) * x_[at];
    if (!z_.empty()) y *= formulas::silu<Math>(z_[at]);
    if (sinks.y != nullptr) sinks.put_y(at, y);
  }

  void advance_diagonal(std::int64_t d, T dt, T x, const W* b, W* h) const {
    const W* a = a_.data() + d * p_.state;
    for (std::int64_t n = 0; n < p_.state; ++n) {
      const W w = a[n] * dt;
      const W abar = formulas::decay<D, Math>(w);
      const W gain = formulas::input_gain<D, Math>(w, abar);
      h[n] = formulas::advance(h[n], abar, gain, dt * x, b[n]);
    }
  }

  // (I - dt A/2) h' = (I + dt A/2) h + dt B x
  void advance_full(std::int64_t d, T dt, T x, const W* b, W* h) const {
    if constexpr (!kIsComplex<W> && D == Discretization::bilinear) {
      const std::int64_t n = p_.state;
      const T* a = a_.data() + d * n * n;
      std::vector<T> left(static_cast<std::size_t>(n * n)), right(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; i < n; ++i) {
        right[i] = h[i] + dt * b[i] * x;
        for (std::int64_t j = 0; j < n; ++j) {
          const T half = dt * a[i * n + j] / 2;
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

  // <C, h>; with complex states 2 Re <C, h>, since each stands for a conjugate pair.
  T readout(const W* c, const W* h) const {
    T sum = 0;
    for (std::int64_t n = 0; n < p_.state; ++n) {
      if constexpr (kIsComplex<W>) {
        sum += 2 * (c[n].re * h[n].re - c[n].im * h[n].im);
      } else {
        sum += c[n] * h[n];
      }
    }
    return sum;
  }

  const ScanProblem& p_;
  std::vector<T> x_, dt_, z_;
  std::vector<W> a_, b_, c_;
};

template <class W>
void dispatch(const ScanProblem& problem, bool reverse, const Sinks<RealOf<W>>& sinks) {
  switch (problem.options.discretization) {
    case Discretization::zoh:
      return Loop<Discretization::zoh, W>(problem).run(reverse, sinks);
    case Discretization::foh:
      return Loop<Discretization::foh, W>(problem).run(reverse, sinks);
    case Discretization::bilinear:
      return Loop<Discretization::bilinear, W>(problem).run(reverse, sinks);
    case Discretization::highorder:
      return Loop<Discretization::highorder, W>(problem).run(reverse, sinks);
    case Discretization::poly:
      return Loop<Discretization::poly, W>(problem).run(reverse, sinks);
    case Discretization::rk4:
      return Loop<Discretization::rk4, W>(problem).run(reverse, sinks);
  }
}

template <class T>
void both_directions(const ScanProblem& problem, const Sinks<T>& sinks, void* y_reverse) {
  const auto run = [&](bool reverse, const Sinks<T>& to) {
    if (problem.complex) {
      dispatch<Complex<T>>(problem, reverse, to);
    } else {
      dispatch<T>(problem, reverse, to);
    }
  };
  const Direction direction = problem.options.direction;
  run(direction == Direction::reverse, sinks);
  if (direction == Direction::both) run(true, Sinks<T>{y_reverse, sinks.y_dtype, nullptr, nullptr});
}

}  // namespace

void scan_reference(const ScanProblem& problem, const ScanReferenceOutputs& outputs) {
  both_directions<double>(problem, {outputs.y, Dtype::f64, outputs.final_state, outputs.states},
                          outputs.y_reverse);
}

void scan_reference_f32(const ScanProblem& problem, const ScanOutputs& outputs) {
  both_directions<float>(problem, {outputs.y, problem.dtype, outputs.final_state, outputs.states},
                         outputs.y_reverse);
}

}  // namespace exphil::core
