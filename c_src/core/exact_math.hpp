// exp and log in double precision from additions, products and quotients alone. The C library's differ by the
// last bit between machines, and fresh weights must not. Accurate to a few units in the last place where
// used: log of positive numbers, exp from -50 to 50. No statement has a product and a sum, because the
// compiler may round the two as one (-ffp-contract=on), and does so on some machines only. Pure functions;
// any thread.
#pragma once

#include <cmath>

namespace exphil::core {

inline constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// log x = e ln 2 + 2 atanh((m - 1) / (m + 1)) for x = m 2^e, with m around 1.
inline double exact_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) m *= 2, --exponent;
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = 14; k >= 0; --k) {
    const double rest = sum * square;
    sum = rest + 1.0 / (2 * k + 1);
  }
  const double around_one = 2 * s * sum, power = exponent * kLn2;
  return power + around_one;
}

// 2^k times the Taylor series of the rest, which is at most ln 2 / 2.
inline double exact_exp(double x) {
  const double k = std::nearbyint(x / kLn2), whole = k * kLn2, rest = x - whole;
  double sum = 1;
  for (int i = 18; i >= 1; --i) {
    const double next = sum * rest / i;
    sum = 1 + next;
  }
  return std::ldexp(sum, static_cast<int>(k));
}

}  // namespace exphil::core
