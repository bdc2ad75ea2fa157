// One step of AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2) on one
// tensor. Element by element, so any number of threads gives the same bits. Callers: nif/optimiser.cpp and
// the backends' training steps. Memory of the caller.
#pragma once

#include <cstdint>

namespace exphil::core {

struct AdamW {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;    // of this tensor
  double gradient_scale = 1;  // multiplies the gradient first, for clipping by its norm
  std::int64_t step = 1;      // counts from 1
};

// What the elements of a step have in common, rounded to their type.
template <class T>
struct AdamWFactors {
  explicit AdamWFactors(const AdamW& options);
  T beta1, beta2, rest1, rest2;  // rest: 1 - beta
  T rate, root;                  // with the corrections of the means
  T kept;                        // of a weight by decay
  T epsilon, scale;
};

// m and v are the running means of the gradient and of its square; the results may be the inputs.
template <class T>
struct AdamWTensor {
  const T *weight = nullptr, *gradient = nullptr, *m = nullptr, *v = nullptr;
  T *next_weight = nullptr, *next_m = nullptr, *next_v = nullptr;
};

template <class T>
void adamw_step(const AdamW& options, const AdamWTensor<T>& tensor, std::int64_t count);

// Whether no value is infinite or NaN.
template <class T>
bool all_finite(const T* values, std::int64_t count);

// The sum of squares, in the order of the elements.
template <class T>
double sum_of_squares(const T* values, std::int64_t count);

}  // namespace exphil::core
