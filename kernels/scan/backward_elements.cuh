// What the kernels of the scan's gradient do for each element of {batch, seq, dim}: dL/d<C, h> before the
// recurrence; the gradients of x, dt and z after it. Included by those kernels only.
#pragma once

#include "kernels/common/gradient_formulas.cuh"
#include "kernels/scan/backward_arguments.cuh"
#include "kernels/scan/frame.cuh"

namespace exphil {
namespace scan {

// `Count` neighbouring elements of type E, 1 or 4, aligned to their size, as they lie in memory. What is
// loaded some time before it is used must stay packed: widening it would wait for the load.
template <int E, int Count>
struct Packed {
  typename device::StorageOf<E>::Type value;
};
template <int E>
struct Packed<E, 4> {
  uint2 value;
};
template <>
struct Packed<device::kF32, 4> {
  float4 value;
};
template <int E, int Count>
EXPHIL_DEVICE Packed<E, Count> load_packed(const void* data, long long at) {
  const auto* from = static_cast<const typename device::StorageOf<E>::Type*>(data) + at;
  return *reinterpret_cast<const Packed<E, Count>*>(from);
}
template <int E, int Count>
EXPHIL_DEVICE void widen(const Packed<E, Count>& in, float (&out)[Count]) {
  if constexpr (Count == 4 && E == device::kF32) {
    out[0] = in.value.x, out[1] = in.value.y, out[2] = in.value.z, out[3] = in.value.w;
  } else if constexpr (Count == 4) {
    const unsigned words[] = {in.value.x, in.value.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[i] = device::widen<E>(static_cast<unsigned short>(words[i / 2] >> (16 * (i % 2))));
    }
  } else {
    out[0] = device::widen<E>(in.value);
  }
}

// `Count` neighbouring elements.
template <int Count = 1>
struct Elements {
  float value[Count];
};
template <int Count>
EXPHIL_DEVICE Elements<Count> widen_elements(const Packed<ELEMENT, Count>& in) {
  Elements<Count> out;
  widen(in, out.value);
  return out;
}
EXPHIL_DEVICE float load_element(const void* data, long long at) {
  return widen_elements(load_packed<ELEMENT, 1>(data, at)).value[0];
}
template <int Count>
EXPHIL_DEVICE void write_elements(void* data, long long at, const float (&value)[Count]) {
  Storage* to = static_cast<Storage*>(data) + at;
  if constexpr (Count == 4 && ELEMENT == device::kF32) {
    device::store_wide(to, make_float4(value[0], value[1], value[2], value[3]));
  } else if constexpr (Count == 4) {
    device::store_wide(to, uint2{device::narrow_two<ELEMENT>(value[0], value[1]),
                                 device::narrow_two<ELEMENT>(value[2], value[3])});
  } else {
    to[0] = device::narrow<ELEMENT>(value[0]);
  }
}
// Where the gradient is asked for.
template <int Count>
EXPHIL_DEVICE void store_elements(void* data, long long at, const float (&value)[Count]) {
  if (data != nullptr) write_elements(data, at, value);
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
struct PackedInputs {
  Packed<ELEMENT, Count> x, dt, dy, z;
};
template <int Count>
EXPHIL_DEVICE PackedInputs<Count> load_inputs(const BackwardArguments& all, long long at) {
  PackedInputs<Count> in{};
  in.x = load_packed<ELEMENT, Count>(all.scan.x, at), in.dt = load_packed<ELEMENT, Count>(all.scan.dt, at);
  in.dy = load_packed<ELEMENT, Count>(all.dy, at);
  if (HAS_Z) in.z = load_packed<ELEMENT, Count>(all.scan.z, at);
  return in;
}
template <int Count>
EXPHIL_DEVICE Inputs<Count> widen_inputs(const PackedInputs<Count>& in) {
  return {widen_elements(in.x), widen_elements(in.dt), widen_elements(in.dy), widen_elements(in.z)};
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
