#include "core/training/adamw.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/work/parallel.hpp"

namespace exphil::core {

template <class T>
void adamw_step(const AdamW& options, const AdamWTensor<T>& t, std::int64_t count) {
  const auto beta1 = static_cast<T>(options.beta1), beta2 = static_cast<T>(options.beta2);
  const auto rest1 = static_cast<T>(1 - options.beta1), rest2 = static_cast<T>(1 - options.beta2);
  const double step = static_cast<double>(options.step);
  const auto rate = static_cast<T>(options.learning_rate / (1 - std::pow(options.beta1, step)));
  const auto root = static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, step)));
  const auto kept = static_cast<T>(1 - options.learning_rate * options.weight_decay);
  const auto epsilon = static_cast<T>(options.epsilon), scale = static_cast<T>(options.gradient_scale);
  parallel_for(count, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T gradient = t.gradient[i] * scale;
      const T m = beta1 * t.m[i] + rest1 * gradient;
      const T v = beta2 * t.v[i] + rest2 * gradient * gradient;
      t.next_m[i] = m;
      t.next_v[i] = v;
      t.next_weight[i] = kept * t.weight[i] - rate * m / (std::sqrt(v) * root + epsilon);
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
