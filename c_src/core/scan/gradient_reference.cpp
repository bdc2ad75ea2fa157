#include "core/scan/gradient_reference.hpp"

#include <cstddef>

#include "core/error.hpp"
#include "core/scan/reference_operands.hpp"
#include "kernels/common/gradient_formulas.cuh"

namespace exphil::core {

namespace {

using formulas::Discretization;

// The sums of one gradient, in the shape of its operand.
template <class W>
using Sums = std::vector<W>;

template <class W>
std::vector<RealOf<W>> flat(const Sums<W>& sums) {
  std::vector<RealOf<W>> out;
  for (const W& value : sums) {
    if constexpr (kIsComplex<W>) {
      out.push_back(value.re);
      out.push_back(value.im);
    } else {
      out.push_back(value);
    }
  }
  return out;
}

template <Discretization D, class W>
class GradientLoop {
 public:
  using T = RealOf<W>;
  using Math = ScalarMath<T>;

  explicit GradientLoop(const ScanGradProblem& problem)
      : g_(problem), p_(problem.scan.shape), in_(problem.scan) {
    dy_ = widen<T>(g_.dy, p_.dtype, p_.y_elements());
    dx_.resize(in_.x.size());
    ddt_.resize(in_.dt.size());
    dz_.resize(in_.z.size());
    da_.resize(in_.a.size());
    db_.resize(in_.b.size());
    dc_.resize(in_.c.size());
    dd_.resize(in_.skip.size());
    dbias_.resize(in_.dt_bias.size());
    dh_.resize(static_cast<std::size_t>(p_.batch * p_.dim * p_.state));
  }

  ScanGradValues<T> run() {
    for (std::int64_t batch = 0; batch < p_.batch; ++batch) {
      for (std::int64_t d = 0; d < p_.dim; ++d) run_channel(batch, d);
    }
    return {dx_, ddt_, flat(da_), flat(db_), flat(dc_), dd_, dz_, dbias_, flat(dh_)};
  }

 private:
  // The i-th step in scan order.
  std::int64_t step_at(std::int64_t i) const {
    return p_.options.direction == Direction::reverse ? p_.seq - 1 - i : i;
  }

  void run_channel(std::int64_t batch, std::int64_t d) {
    const std::int64_t row = (batch * p_.dim + d) * p_.state;
    // h before each step, and after the last.
    std::vector<std::vector<W>> h(1);
    for (std::int64_t n = 0; n < p_.state; ++n) h[0].push_back(in_.initial(row + n));
    for (std::int64_t i = 0; i < p_.seq; ++i) {
      const std::int64_t t = step_at(i), at = (batch * p_.seq + t) * p_.dim + d;
      h.push_back(h.back());
      const W* b = in_.b.data() + in_.projection_row(p_.b_layout, batch, t, d);
      in_.template advance<D>(d, in_.active_dt(at, d), in_.x[at], b, h.back().data());
    }
    std::vector<W> g(static_cast<std::size_t>(p_.state));  // the gradient of h
    for (std::int64_t n = 0; n < p_.state && g_.d_final_state != nullptr; ++n) {
      g[n] = load<W>(g_.d_final_state, Dtype::f32, row + n);
    }
    for (std::int64_t i = p_.seq; i-- > 0;) step_back(batch, step_at(i), d, h[i], h[i + 1], &g);
    for (std::int64_t n = 0; n < p_.state; ++n) dh_[row + n] = g[n];
  }

  // Turns g from the gradient of h_after into the gradient of h_before.
  void step_back(std::int64_t batch, std::int64_t t, std::int64_t d, const std::vector<W>& h_before,
                 const std::vector<W>& h_after, std::vector<W>* g) {
    const std::int64_t at = (batch * p_.seq + t) * p_.dim + d;
    const std::int64_t c_row = in_.projection_row(p_.c_layout, batch, t, d);
    const T dy = gated(at, d, in_.readout(in_.c.data() + c_row, h_after.data()));
    for (std::int64_t n = 0; n < p_.state; ++n) {
      const W output = scaled_output(dy);
      dc_[c_row + n] = dc_[c_row + n] + formulas::times_conjugate(output, h_after[n]);
      (*g)[n] = (*g)[n] + formulas::times_conjugate(output, in_.c[c_row + n]);
    }
    const T dt = in_.active_dt(at, d);
    T ddt = 0, ddt_x = 0;
    const std::int64_t b_row = in_.projection_row(p_.b_layout, batch, t, d);
    if (p_.full_matrix) {
      full_back(d, dt, in_.x[at], b_row, h_before, h_after, g, &ddt, &ddt_x);
    } else {
      diagonal_back(d, dt, in_.x[at], b_row, h_before, g, &ddt, &ddt_x);
    }
    dx_[at] += dt * ddt_x;
    ddt += in_.x[at] * ddt_x;
    ddt_[at] = activate_dt_gradient<Math>(p_.options, in_.dt[at], in_.bias(d), ddt);
    if (!dbias_.empty()) dbias_[d] += ddt_[at];
  }

  // Back through silu(z) and D x: returns the gradient of <C, h>.
  T gated(std::int64_t at, std::int64_t d, T readout) {
    T dy = dy_[at];
    const T skip = in_.skip.empty() ? T{0} : in_.skip[d];
    if (!in_.z.empty()) {
      dz_[at] = dy * (readout + skip * in_.x[at]) * formulas::silu_derivative<Math>(in_.z[at]);
      dy *= formulas::silu<Math>(in_.z[at]);
    }
    if (!in_.skip.empty()) {
      dd_[d] += dy * in_.x[at];
      dx_[at] = dy * skip;
    }
    return dy;
  }

  // The derivative of y = <C, h>, or of 2 Re <C, h> where complex.
  static W scaled_output(T dy) {
    if constexpr (kIsComplex<W>) {
      return {2 * dy, T{0}};
    } else {
      return dy;
    }
  }

  void diagonal_back(std::int64_t d, T dt, T x, std::int64_t b_row, const std::vector<W>& h,
                     std::vector<W>* g, T* ddt, T* ddt_x) {
    for (std::int64_t n = 0; n < p_.state; ++n) {
      const W a = in_.a[d * p_.state + n], w = a * dt;
      const W abar = formulas::decay<D, Math>(w);
      const W gain = formulas::input_gain<D, Math>(w, abar);
      const auto back =
          formulas::advance_gradient<D, Math>((*g)[n], h[n], w, abar, gain, dt * x, in_.b[b_row + n]);
      (*g)[n] = back.h;
      db_[b_row + n] = db_[b_row + n] + back.b;
      da_[d * p_.state + n] = da_[d * p_.state + n] + back.w * dt;
      *ddt += formulas::real_product(back.w, a);
      *ddt_x += back.dt_x;
    }
  }

  // (I - dt A/2) h' = (I + dt A/2) h + dt x B. With q = (I - dt A/2)^-T g, the gradient of the right side,
  // A receives dt/2 q (h' + h)^T.
  void full_back(std::int64_t d, T dt, T x, std::int64_t b_row, const std::vector<W>& h,
                 const std::vector<W>& h_after, std::vector<W>* g, T* ddt, T* ddt_x) {
    if constexpr (!kIsComplex<W> && D == Discretization::bilinear) {
      const std::size_t n = static_cast<std::size_t>(p_.state);
      const T* a = in_.a.data() + static_cast<std::size_t>(d) * n * n;
      T* da = da_.data() + static_cast<std::size_t>(d) * n * n;
      std::vector<T> transposed(n * n), q = *g;
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j)
          transposed[j * n + i] = (i == j ? T{1} : T{0}) - dt * a[i * n + j] / 2;
      }
      solve(&transposed, &q);
      *g = q;
      for (std::size_t i = 0; i < n; ++i) {
        db_[static_cast<std::size_t>(b_row) + i] += q[i] * dt * x;
        *ddt_x += q[i] * in_.b[static_cast<std::size_t>(b_row) + i];
        for (std::size_t j = 0; j < n; ++j) {
          const T middle = (h_after[j] + h[j]) / 2;
          da[i * n + j] += dt * q[i] * middle;
          *ddt += q[i] * a[i * n + j] * middle;
          (*g)[j] += dt * a[i * n + j] / 2 * q[i];
        }
      }
    } else {
      fail(ErrorKind::internal, "a", "a full matrix reached a method other than :bilinear");
    }
  }

  const ScanGradProblem& g_;
  const ScanShape& p_;
  const ReferenceOperands<W> in_;
  std::vector<T> dy_, dx_, ddt_, dz_, dd_, dbias_;
  Sums<W> da_, db_, dc_, dh_;
};

template <class W>
ScanGradValues<RealOf<W>> dispatch(const ScanGradProblem& problem) {
  switch (problem.scan.shape.options.discretization) {
    case Discretization::zoh:
      return GradientLoop<Discretization::zoh, W>(problem).run();
    case Discretization::foh:
      return GradientLoop<Discretization::foh, W>(problem).run();
    case Discretization::bilinear:
      return GradientLoop<Discretization::bilinear, W>(problem).run();
    case Discretization::highorder:
      return GradientLoop<Discretization::highorder, W>(problem).run();
    case Discretization::poly:
      return GradientLoop<Discretization::poly, W>(problem).run();
    case Discretization::rk4:
      return GradientLoop<Discretization::rk4, W>(problem).run();
  }
  return {};
}

}  // namespace

ScanGradValues<double> scan_grad_reference(const ScanGradProblem& problem) {
  return problem.scan.shape.complex ? dispatch<Complex<double>>(problem) : dispatch<double>(problem);
}

ScanGradValues<float> scan_grad_reference_f32(const ScanGradProblem& problem) {
  return problem.scan.shape.complex ? dispatch<Complex<float>>(problem) : dispatch<float>(problem);
}

}  // namespace exphil::core
