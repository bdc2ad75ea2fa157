// The math policy of kernels/common/formulas.cuh for plain float and double: the oracle and the tails of SIMD
// loops.
#pragma once

#include <cmath>

namespace exphil::core {

template <class T>
struct ScalarMath {
  static T set(T, double value) { return static_cast<T>(value); }
  static T exp(T v) { return std::exp(v); }
  static T log1p(T v) { return std::log1p(v); }
  static T abs(T v) { return std::abs(v); }
  static T floor(T v) { return std::floor(v); }
  static T max(T left, T right) { return left < right ? right : left; }
  static T min(T left, T right) { return right < left ? right : left; }
  static void sin_cos(T v, T* sin, T* cos) {
    *sin = std::sin(v);
    *cos = std::cos(v);
  }
  static T select_less(T left, T right, T if_less, T otherwise) { return left < right ? if_less : otherwise; }
};

}  // namespace exphil::core
