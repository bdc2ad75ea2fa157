// An element's way in and out, as every scan of a diagonal A takes it: dt' from dt, y from <C, h>. The
// options are -D defines (ELEMENT, SOFTPLUS, CLIP, HAS_D, HAS_Z). Included by kernels only.
#pragma once

#include "kernels/scan/arguments.cuh"
#include "kernels/scan/rules.cuh"

namespace exphil {
namespace scan {

using Storage = device::StorageOf<ELEMENT>::Type;

// dt' = clip(softplus(dt + bias)).
EXPHIL_DEVICE float activate_dt(const Arguments& p, float dt, float bias) {
#if CLIP
  return formulas::activate_dt<device::Math>(device::Real{dt}, device::Real{bias}, SOFTPLUS,
                                             device::Real{p.dt_min}, device::Real{p.dt_max})
      .v;
#else
  const device::Real biased = device::Real{dt} + device::Real{bias};
  return SOFTPLUS ? formulas::softplus<device::Math>(biased).v : biased.v;
#endif
}

// y = (<C, h> + D x) silu(z), rounded to the caller's type; x and z are read where there is D, and z.
template <class Rule>
EXPHIL_DEVICE Storage finish(float sum, Storage x, Storage z, float d) {
  float value = Rule::kReadOutScale == 1.0f ? sum : __fmul_rn(sum, Rule::kReadOutScale);
#if HAS_D
  value = __fmaf_rn(d, device::widen<ELEMENT>(x), value);
#endif
#if HAS_Z
  value = __fmul_rn(value, device::silu(device::widen<ELEMENT>(z)));
#endif
  return device::narrow<ELEMENT>(value);
}

}  // namespace scan
}  // namespace exphil
