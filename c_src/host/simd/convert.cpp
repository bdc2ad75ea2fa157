#include "host/simd/convert.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/simd/convert.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include "host/simd/convert-inl.hpp"
// clang-format on

#if HWY_ONCE
namespace exphil::host {

namespace {
HWY_EXPORT(run_widen_row);
HWY_EXPORT(run_narrow_row);
}  // namespace

void widen_row(core::Dtype dtype, const void* from, std::int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(run_widen_row)(dtype, from, count, to);
}

void narrow_row(core::Dtype dtype, const float* from, std::int64_t count, void* to) {
  HWY_DYNAMIC_DISPATCH(run_narrow_row)(dtype, from, count, to);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
