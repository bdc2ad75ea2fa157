// The gradient of a linear recurrence h_t = a_t h_(t-1) + b_t, whose results h are known:
//
//   db_t = dh_t + conj(a_(t+1)) db_(t+1)    a linear recurrence in the other direction
//   da_t = db_t conj(h_(t-1))               h before the first step: the initial state
//   d_initial = conj(a_1) db_1
//
// t counts in scan order. Compiled by the host compiler (core/associative/recurrence_gradient.cpp) and by
// NVRTC (associative/device.cuh). Pure functions.
#pragma once

#include "kernels/common/gradient_formulas.cuh"

namespace exphil {
namespace associative {

EXPHIL_FN float conjugate(float v) {
  return v;
}
EXPHIL_FN formulas::Complex<float> conjugate(formulas::Complex<float> v) {
  return {v.re, -v.im};
}

// v, with 0 for -0: associative_grad adds the gradients of its directions up from 0, and this gradient has
// its bits.
template <class V>
EXPHIL_FN V from_zero(V v) {
  return V() + v;
}

// da of an element, from its db and the state before it.
template <class V>
EXPHIL_FN V decay_gradient(V db, V before) {
  return from_zero(formulas::times_conjugate(db, before));
}

}  // namespace associative
}  // namespace exphil
