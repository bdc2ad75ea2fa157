// One step of an associative scan on vectors and on single elements, for the sweeps. Compiled once for each
// SIMD target.
#if defined(EXPHIL_HOST_ASSOCIATIVE_ELEMENTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_ASSOCIATIVE_ELEMENTS_INL
#undef EXPHIL_HOST_ASSOCIATIVE_ELEMENTS_INL
#else
#define EXPHIL_HOST_ASSOCIATIVE_ELEMENTS_INL
#endif

#include "core/associative/problem.hpp"
#include "host/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

using associative::Op;
using core::Dtype;

template <Op O, bool Compensated>
using Scalar = typename associative::Select<O, float, Compensated>::Type;

template <Dtype T>
HWY_INLINE float scalar_load(const Element<T>* from) {
  if constexpr (T == Dtype::f32) return *from;
  if constexpr (T == Dtype::f16) return core::f16_to_f32(static_cast<std::uint16_t>(*from));
  return core::bf16_to_f32(static_cast<std::uint16_t>(*from));
}

template <Dtype T>
HWY_INLINE void scalar_store(float value, Element<T>* to) {
  if constexpr (T == Dtype::f32) {
    *to = value;
  } else {
    *to = T == Dtype::f16 ? core::f32_to_f16(value) : core::f32_to_bf16(value);
  }
}

// The larger (smaller) of two values, the earlier one where they are equal; the first NaN is kept.
template <Op O, class V>
HWY_INLINE V extremum(V earlier, V later) {
  const auto keep = O == Op::cummax ? earlier >= later : earlier <= later;
  return hn::IfThenElse(hn::Or(keep, hn::IsNaN(earlier)), earlier, later);
}

// h after one element, on vectors of f32. Only the recurrence reads `a`.
template <Op O>
HWY_INLINE F vector_step(F h, F a, F x) {
  if constexpr (O == Op::cumsum) return h + x;
  if constexpr (O == Op::cumprod) return h * x;
  if constexpr (O == Op::linear_recurrence) return hn::MulAdd(a, h, x);
  if constexpr (O == Op::cummax || O == Op::cummin) return extremum<O>(h, x);
}

// The sum and its rounding error after another sum and its error; see CompensatedSum.
HWY_INLINE void vector_compensated(F* h, F* error, F x, F x_error) {
  const F total = *h + x;
  const F part = total - *h;
  F lost = ((*h - (total - part)) + (x - part)) + (*error + x_error);
  lost = hn::IfThenElseZero(hn::IsFinite(total), lost);
  *h = total + lost;
  *error = lost - (*h - total);
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
