#include "core/training/adamw.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/work/parallel.hpp"

namespace exphil::core {

template <class T>
AdamWFactors<T>::AdamWFactors(const AdamW& options)
    : beta1(static_cast<T>(options.beta1)),
      beta2(static_cast<T>(options.beta2)),
      rest1(static_cast<T>(1 - options.beta1)),
      rest2(static_cast<T>(1 - options.beta2)),
      rate(static_cast<T>(options.learning_rate /
                          (1 - std::pow(options.beta1, static_cast<double>(options.step))))),
      root(static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, static_cast<double>(options.step))))),
      kept(static_cast<T>(1 - options.learning_rate * options.weight_decay)),
      epsilon(static_cast<T>(options.epsilon)),
      scale(static_cast<T>(options.gradient_scale)) {}
template struct AdamWFactors<float>;
template struct AdamWFactors<double>;

template <class T>
void adamw_step(const AdamW& options, const AdamWTensor<T>& t, std::int64_t count) {
  const AdamWFactors<T> f(options);
  parallel_for(count, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T gradient = t.gradient[i] * f.scale;
      const T m = f.beta1 * t.m[i] + f.rest1 * gradient;
      const T v = f.beta2 * t.v[i] + f.rest2 * gradient * gradient;
      t.next_m[i] = m;
      t.next_v[i] = v;
      t.next_weight[i] = f.kept * t.weight[i] - f.rate * m / (std::sqrt(v) * f.root + f.epsilon);
    }
  });
}
template void adamw_step(const AdamW&, const AdamWTensor<float>&, std::int64_t);
template void adamw_step(const AdamW&, const AdamWTensor<double>&, std::int64_t);

template <class T>
bool all_finite(const T* values, std::int64_t count) {
  std::atomic<bool> finite{true};
  parallel_for(count, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    if (!std::all_of(values + begin, values + end, [](T value) { return std::isfinite(value); })) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  return finite;
}
template bool all_finite(const float*, std::int64_t);
template bool all_finite(const double*, std::int64_t);

template <class T>
double sum_of_squares(const T* values, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += double{values[i]} * double{values[i]};
  return sum;
}
template double sum_of_squares(const float*, std::int64_t);
template double sum_of_squares(const double*, std::int64_t);

}  // namespace exphil::core
