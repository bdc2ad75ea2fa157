// The associative operations: one sequential step of each, and how
// segments of time are summarised, combined and applied. Compiled by the
// host compiler and by NVRTC, so it includes only files of kernels/.
//
// An operation is a class with
//   State               the value carried by the sequential loop; initial(), step(state, a, x), value(state)
//   Builder             builds a Summary: push(a, x) for each element in time order, finish()
//   Summary             the effect of a segment on the state before it; identity(), compose(earlier, later)
//   apply(summary, &state) -> bool
// x is the element (b of the linear recurrence) and `a` its decay, ignored by every other operation.
//
// Composing segments reorders arithmetic, and a product of decays may overflow or underflow where the
// sequential loop does not (0 * infinity would then be a NaN that the definition never produces). Each float
// Summary therefore has a `limit`: for |state| <= limit, no intermediate of the sequential loop or of the
// composition leaves f32's range, so apply() equals the loop up to rounding. Beyond the limit apply() returns
// false and the caller processes the segment step by step. -1 means always step by step.
#pragma once

#include "kernels/associative/recurrence.cuh"
#include "kernels/associative/sums.cuh"

namespace exphil {
namespace associative {

// The numbers are part of the kernels' -D interface: append only.
enum class Op : int { cumsum = 0, cumprod = 1, cummax = 2, cummin = 3, linear_recurrence = 4 };

// The class for an operation on accumulators of type V (float, int, long long, Complex<float>).
template <Op O, class V, bool Compensated>
struct Select;
template <class V>
struct Select<Op::cumsum, V, false> {
  using Type = Sum<V>;
};
template <class V>
struct Select<Op::cumsum, V, true> {
  using Type = CompensatedSum<V>;
};
template <>
struct Select<Op::cumsum, int, false> {
  using Type = IntegerSum<int, unsigned>;
};
template <>
struct Select<Op::cumsum, long long, false> {
  using Type = IntegerSum<long long, unsigned long long>;
};
template <class V>
struct Select<Op::cumprod, V, false> {
  using Type = Product<V>;
};
template <class V>
struct Select<Op::cummax, V, false> {
  using Type = Extremum<V, true>;
};
template <class V>
struct Select<Op::cummin, V, false> {
  using Type = Extremum<V, false>;
};
template <class V>
struct Select<Op::linear_recurrence, V, false> {
  using Type = LinearRecurrence<V>;
};

}  // namespace associative
}  // namespace exphil
