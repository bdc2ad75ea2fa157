// kernels/common/formulas.cuh with the scalar math policy, against long double.
#include "kernels/common/formulas.cuh"

#include <cmath>
#include <complex>
#include <limits>

#include "core/scalar_math.hpp"
#include "support/catch.hpp"

namespace exphil {

namespace {

using core::ScalarMath;
using formulas::Complex;
using formulas::Discretization;

template <class T>
double phi1_error(T w) {
  using Math = ScalarMath<T>;
  const double got = formulas::phi1<Math>(w, std::exp(w));
  const long double wide = w;
  const long double exact = w == 0 ? 1.0L : std::expm1(wide) / wide;
  return static_cast<double>(std::abs((got - exact) / exact));
}

std::complex<long double> wide(Complex<double> v) {
  return {v.re, v.im};
}

}  // namespace

TEST_CASE("phi1 keeps full accuracy through zero", "[formulas]") {
  double worst_double = 0, worst_float = 0;
  for (int i = -4000; i <= 4000; ++i) {
    const double w = i / 1000.0;
    worst_double = std::max(worst_double, phi1_error<double>(w));
    worst_float = std::max(worst_float, phi1_error<float>(static_cast<float>(w)));
  }
  for (const double tiny : {1e-300, 1e-30, 1e-12, -1e-9, 1e-6, -1e-4}) {
    worst_double = std::max(worst_double, phi1_error<double>(tiny));
    worst_float = std::max(worst_float, phi1_error<float>(static_cast<float>(tiny)));
  }
  CHECK(worst_double < 2e-15);
  CHECK(worst_float < 1e-6);
  CHECK(formulas::phi1<ScalarMath<float>>(-200.0f, 0.0f) == Approx(1.0 / 200));
}

TEST_CASE("complex formulas agree with std::complex", "[formulas]") {
  using Math = ScalarMath<double>;
  const auto close = [](Complex<double> got, std::complex<long double> exact) {
    return std::abs(wide(got) - exact) <= 4e-15L * std::max(1.0L, std::abs(exact));
  };
  for (const Complex<double> w : {Complex<double>{-0.5, 1.25}, Complex<double>{-1e-5, 2e-6},
                                  Complex<double>{-0.2, 0.24}, Complex<double>{0.0, -3.0}}) {
    const std::complex<long double> exact_w = wide(w);
    const std::complex<long double> e = std::exp(exact_w);
    const Complex<double> abar = formulas::decay<Discretization::foh, Math>(w);
    CHECK(close(abar, e));
    std::complex<long double> phi = 1;
    std::complex<long double> term = 1;
    for (int k = 2; k < 60; ++k) phi += (term *= exact_w / static_cast<long double>(k));
    CHECK(close(formulas::input_gain<Discretization::foh, Math>(w, abar), phi));
    const std::complex<long double> tustin = (1.0L + exact_w / 2.0L) / (1.0L - exact_w / 2.0L);
    CHECK(close(formulas::decay<Discretization::bilinear, Math>(w), tustin));
    const std::complex<long double> rk4 =
        1.0L + exact_w / 2.0L + exact_w * exact_w / 6.0L + exact_w * exact_w * exact_w / 24.0L;
    CHECK(close(formulas::input_gain<Discretization::rk4, Math>(w, abar), rk4));
  }
}

TEST_CASE("softplus, silu and the clamp behave at the extremes", "[formulas]") {
  using Math = ScalarMath<float>;
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  CHECK(formulas::softplus<Math>(100.0f) == 100.0f);
  CHECK(formulas::softplus<Math>(1e30f) == 1e30f);
  CHECK(formulas::softplus<Math>(-80.0f) == Approx(std::exp(-80.0)));
  CHECK(formulas::softplus<Math>(0.0f) == Approx(std::log(2.0)));
  CHECK(std::isnan(formulas::softplus<Math>(nan)));
  CHECK(formulas::silu<Math>(-1000.0f) == 0.0f);
  CHECK(formulas::silu<Math>(1000.0f) == 1000.0f);
  CHECK(formulas::activate_dt<Math>(3.0f, 1.0f, false, -infinity, infinity) == 4.0f);
  CHECK(formulas::activate_dt<Math>(3.0f, 1.0f, false, 0.1f, 0.5f) == 0.5f);
  CHECK(formulas::activate_dt<Math>(-3.0f, 1.0f, false, 0.1f, 0.5f) == 0.1f);
  CHECK(std::isnan(formulas::activate_dt<Math>(nan, 0.0f, true, 0.1f, 0.5f)));
}

}  // namespace exphil
