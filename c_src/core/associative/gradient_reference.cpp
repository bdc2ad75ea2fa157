#include "core/associative/gradient_reference.hpp"

#include <complex>

#include "core/half.hpp"

namespace exphil::core {

namespace {

using Number = std::complex<double>;

Number number(const void* data, Dtype dtype, std::int64_t index) {
  const auto* floats = static_cast<const float*>(data);
  const auto* halves = static_cast<const std::uint16_t*>(data);
  switch (dtype) {
    case Dtype::c64:
      return {floats[2 * index], floats[2 * index + 1]};
    case Dtype::f16:
      return f16_to_f32(halves[index]);
    case Dtype::bf16:
      return bf16_to_f32(halves[index]);
    default:
      return floats[index];
  }
}

using Numbers = std::vector<Number>;

// One sequence in scan order; adds to dx and da.
void add_gradient(AssociativeOp op, const Numbers& x, const Numbers& a, const Numbers& dy, Numbers* dx,
                  Numbers* da) {
  const std::size_t length = x.size();
  Number h = 0;          // of the recurrence
  std::size_t best = 0;  // index of the extremum
  Numbers states;
  for (std::size_t s = 0; s < length; ++s) {
    if (op == AssociativeOp::cumsum) {
      for (std::size_t t = 0; t <= s; ++t) (*dx)[t] += dy[s];
    } else if (op == AssociativeOp::cumprod) {
      for (std::size_t t = 0; t <= s; ++t) {
        Number others = 1;
        for (std::size_t i = 0; i <= s; ++i) others *= i == t ? 1.0 : x[i];
        (*dx)[t] += others * dy[s];
      }
    } else if (op == AssociativeOp::linear_recurrence) {
      Number factor = dy[s];
      for (std::size_t t = s + 1; t-- > 0;) {
        (*dx)[t] += factor;
        if (t > 0) (*da)[t] += factor * std::conj(states[t - 1]);
        factor *= std::conj(a[t]);
      }
      states.push_back(h = a[s] * h + x[s]);
    } else {
      const double value = x[s].real(), extremum = x[best].real();
      const bool beyond = op == AssociativeOp::cummax ? value > extremum : value < extremum;
      if (extremum == extremum && (beyond || value != value)) best = s;
      (*dx)[best] += dy[s];
    }
  }
}

}  // namespace

AssociativeGradReference associative_grad_reference(const AssociativeGradProblem& problem) {
  const AssociativeProblem& p = problem.scan;
  const bool complex = p.dtype == Dtype::c64;
  Numbers dx(static_cast<std::size_t>(p.elements())), da(p.a == nullptr ? 0 : dx.size());
  const auto one_way = [&](bool reverse, const void* dy_data) {
    for (std::int64_t column = 0; column < p.outer * p.inner; ++column) {
      const auto index = [&](std::int64_t i) {
        const std::int64_t t = reverse ? p.length - 1 - i : i;
        return (column / p.inner * p.length + t) * p.inner + column % p.inner;
      };
      Numbers x, a, dy, x_grad(static_cast<std::size_t>(p.length)), a_grad(x_grad.size());
      for (std::int64_t i = 0; i < p.length; ++i) {
        x.push_back(number(p.x, p.dtype, index(i)));
        if (p.a != nullptr) a.push_back(number(p.a, p.dtype, index(i)));
        dy.push_back(number(dy_data, p.dtype, index(i)));
      }
      add_gradient(p.op, x, a, dy, &x_grad, &a_grad);
      for (std::int64_t i = 0; i < p.length; ++i) {
        dx[static_cast<std::size_t>(index(i))] += x_grad[static_cast<std::size_t>(i)];
        if (!da.empty()) da[static_cast<std::size_t>(index(i))] += a_grad[static_cast<std::size_t>(i)];
      }
    }
  };
  one_way(p.direction == Direction::reverse, problem.dy);
  if (p.direction == Direction::both) one_way(true, problem.dy_reverse);
  const auto flat = [&](const Numbers& numbers) {
    std::vector<double> out;
    for (const Number& number : numbers) {
      out.push_back(number.real());
      if (complex) out.push_back(number.imag());
    }
    return out;
  };
  return {flat(dx), flat(da)};
}

}  // namespace exphil::core
