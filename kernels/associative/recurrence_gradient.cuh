// The gradient of a linear recurrence h_t = a_t h_(t-1) + b_t, whose results h are known:
//
//   db_t = dh_t + conj(a_(t+1)) db_(t+1)    a linear recurrence in the other direction, with the decays of
//   decay_for da_t = db_t conj(h_(t-1))               h before the first step: the initial state d_initial =
//   conj(a_1) db_1
//
// t counts in scan order. Compiled by the host compiler (core/associative/recurrence_gradient.cpp) and by
// NVRTC (associative/recurrence_gradient.cu). Pure functions.
#pragma once

#include "kernels/common/gradient_formulas.cuh"

namespace exphil {
namespace associative {

// The tensor as {outer, length, inner}, row-major, scanned along the middle axis.
struct RecurrenceShape {
  long long length, inner;
  bool reverse;
};

// Where element i is in its sequence, and the indices of its neighbours in scan order, where it has them.
struct RecurrencePlace {
  bool first, last;
  long long before, after;
  long long column;  // index in {outer, inner}
};

// Element i, which is element k of row t of {length, inner} in sequences `outer`.
EXPHIL_FN RecurrencePlace place_of(const RecurrenceShape& shape, long long i, long long outer, long long t,
                                   long long k) {
  const long long step = shape.reverse ? -shape.inner : shape.inner;
  const bool at_start = t == 0, at_end = t == shape.length - 1;
  return {shape.reverse ? at_end : at_start, shape.reverse ? at_start : at_end, i - step, i + step,
          outer * shape.inner + k};
}

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

// The decay of the gradient's recurrence at an element. `a_at(index)` loads a.
template <class V, class Load>
EXPHIL_FN V decay_for(const RecurrencePlace& place, const Load& a_at) {
  if (place.last) return V();
  return conjugate(a_at(place.after));
}

// da of an element, from its db. `h_at` and `initial_at` load h and the initial state; without an initial
// state `has_initial` is false.
template <class V, class LoadH, class LoadInitial>
EXPHIL_FN V decay_gradient(const RecurrencePlace& place, V db, const LoadH& h_at, bool has_initial,
                           const LoadInitial& initial_at) {
  if (!place.first) return from_zero(formulas::times_conjugate(db, h_at(place.before)));
  return has_initial ? from_zero(formulas::times_conjugate(db, initial_at(place.column))) : V();
}

// The arguments of the two elementwise kernels around the scan. Types: `stored` is the tensors' type, `wide`
// f32, or c64 for c64.
struct RecurrenceGradArguments {
  const void *a, *h, *dh;  // stored
  const void* initial;     // stored {outer, inner}, or null
  void* decays;            // wide: written before the scan
  void* dh_wide;           // wide copy of dh for halves, else null
  const void* sums;        // wide: the scan's result
  void *da, *db;           // stored
  void* d_initial;         // stored {outer, inner}, or null
  RecurrenceShape shape;
  long long elements;
};

constexpr int kRecurrenceGradThreads = 256;

}  // namespace associative
}  // namespace exphil
