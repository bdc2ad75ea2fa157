// What the kernels of the scan's gradient do for each element of {batch, seq, dim}: dL/d<C, h> before the
// recurrence; the gradients of x, dt and z after it. Included by those kernels only.
#pragma once

#include "kernels/common/gradient_formulas.cuh"
#include "kernels/scan/backward_arguments.cuh"
#include "kernels/scan/frame.cuh"

namespace exphil {
namespace scan {

// `Count` neighbouring elements, 1 or 4, aligned to their size.
template <int Count = 1>
struct Elements {
  float value[Count];
};
template <int Count>
EXPHIL_DEVICE Elements<Count> load_elements(const void* data, long long at) {
  const Storage* from = static_cast<const Storage*>(data) + at;
  if constexpr (Count == 4) {
    const float4 v = device::widen_four<ELEMENT>(from);
    return {{v.x, v.y, v.z, v.w}};
  } else {
    return {{device::widen<ELEMENT>(from[0])}};
  }
}
EXPHIL_DEVICE float load_element(const void* data, long long at) {
  return load_elements<1>(data, at).value[0];
}
template <int Count>
EXPHIL_DEVICE void store_elements(void* data, long long at, const float (&value)[Count]) {
  if (data == nullptr) return;
  Storage* to = static_cast<Storage*>(data) + at;
  if constexpr (Count == 4 && ELEMENT == device::kF32) {
    *reinterpret_cast<float4*>(to) = make_float4(value[0], value[1], value[2], value[3]);
  } else if constexpr (Count == 4) {
    ushort4 four;
    four.x = device::narrow<ELEMENT>(value[0]), four.y = device::narrow<ELEMENT>(value[1]);
    four.z = device::narrow<ELEMENT>(value[2]), four.w = device::narrow<ELEMENT>(value[3]);
    *reinterpret_cast<ushort4*>(to) = four;
  } else {
    to[0] = device::narrow<ELEMENT>(value[0]);
  }
}
EXPHIL_DEVICE float bias_of(const Arguments& p, long long channel) {
  return p.dt_bias != nullptr ? p.dt_bias[channel] : 0.0f;
}

// What an element reads.
template <int Count>
struct Inputs {
  Elements<Count> x, dt, dy, z;
};
template <int Count>
EXPHIL_DEVICE Inputs<Count> load_inputs(const BackwardArguments& all, long long at) {
  Inputs<Count> in;
  in.x = load_elements<Count>(all.scan.x, at), in.dt = load_elements<Count>(all.scan.dt, at);
  in.dy = load_elements<Count>(all.dy, at);
  in.z = HAS_Z ? load_elements<Count>(all.scan.z, at) : Elements<Count>{};
  return in;
}

// dL/d(<C, h> + D x), through silu(z).
EXPHIL_DEVICE float gated_dy(float dy, float z) {
  return HAS_Z ? __fmul_rn(dy, device::silu(z)) : dy;
}

struct ElementGradients {
  float dx, ddt, dz;
  float dd;  // what D receives
};
// active: dt'. by_dt, by_input: what dt' receives through Abar and the gain, and what dt' x receives. y: <C,
// h>, where there is z.
EXPHIL_DEVICE ElementGradients finish_element(const Arguments& p, float x, float dt, float raw_dy, float z,
                                              float bias, float d, float active, float by_dt, float by_input,
                                              float y) {
  const float dy = gated_dy(raw_dy, z);
  ElementGradients out{};
  out.dd = __fmul_rn(dy, x);
  out.dx = __fmul_rn(active, by_input);
  if (HAS_D) out.dx = __fmaf_rn(dy, d, out.dx);
  out.ddt = __fmaf_rn(x, by_input, by_dt);
  if (SOFTPLUS || CLIP) {
    using device::Real;
    out.ddt = formulas::activate_dt_gradient<device::Math>(Real{dt}, Real{bias}, SOFTPLUS, Real{p.dt_min},
                                                           Real{p.dt_max}, Real{out.ddt})
                  .v;
  }
  if (HAS_Z) {
    if (HAS_D) y = __fmaf_rn(d, x, y);
    const float slope = formulas::silu_derivative<device::Math>(device::Real{z}).v;
    out.dz = __fmul_rn(__fmul_rn(raw_dy, y), slope);
  }
  return out;
}

}  // namespace scan
}  // namespace exphil
