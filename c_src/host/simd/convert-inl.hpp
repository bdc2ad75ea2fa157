// The conversions of host/simd/convert.hpp for loops that are compiled per SIMD target: included only by such
// units. Pure functions: any thread.
#if defined(EXPHIL_HOST_SIMD_CONVERT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_SIMD_CONVERT_INL
#undef EXPHIL_HOST_SIMD_CONVERT_INL
#else
#define EXPHIL_HOST_SIMD_CONVERT_INL
#endif

#include <algorithm>

#include "host/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

template <core::Dtype T>
void widen_elements(const void* data, std::int64_t count, float* to) {
  const auto* from = static_cast<const Element<T>*>(data);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(load_as_f32<T>(from + i), to + i);
  for (; i < padded(count); i += kLanes) {
    HWY_ALIGN Element<T> rest[kPanel] = {};
    if (i < count) std::copy(from + i, from + count, rest);
    store(load_as_f32<T>(rest), to + i);
  }
}

template <core::Dtype T>
void narrow_elements(const float* from, std::int64_t count, void* data) {
  auto* const to = static_cast<Element<T>*>(data);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_from_f32<T>(load(from + i), to + i);
  if (i == count) return;
  HWY_ALIGN Element<T> rest[kPanel];
  store_from_f32<T>(load(from + i), rest);
  std::copy(rest, rest + (count - i), to + i);
}

inline void run_widen_row(core::Dtype dtype, const void* from, std::int64_t count, float* to) {
  if (dtype == core::Dtype::f32) return widen_elements<core::Dtype::f32>(from, count, to);
  if (dtype == core::Dtype::f16) return widen_elements<core::Dtype::f16>(from, count, to);
  widen_elements<core::Dtype::bf16>(from, count, to);
}

inline void run_narrow_row(core::Dtype dtype, const float* from, std::int64_t count, void* to) {
  if (dtype == core::Dtype::f32) return narrow_elements<core::Dtype::f32>(from, count, to);
  if (dtype == core::Dtype::f16) return narrow_elements<core::Dtype::f16>(from, count, to);
  narrow_elements<core::Dtype::bf16>(from, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
