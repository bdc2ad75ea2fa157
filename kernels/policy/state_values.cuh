// The states of scans and of heads in an agent's state, as Network::states stores them, for the kernels over
// many rows: a lane's are widened to f32 when they are read, and rounded when they are written.
#pragma once

#include "kernels/common/device_math.cuh"
#include "kernels/policy/dims.cuh"

namespace exphil {
namespace policy {

constexpr int kStateElement = static_cast<int>(kNetwork.states);
static_assert(static_cast<int>(States::f32) == device::kF32 &&
                  static_cast<int>(States::f16) == device::kF16 &&
                  static_cast<int>(States::bf16) == device::kBf16,
              "the numbers of device::Element");
constexpr bool kNarrowStates = kNetwork.states != States::f32;

// The nearest value that can be stored, in f16 65504 at most: an infinity would stay in the state for good.
__device__ __forceinline__ unsigned short narrow_state(float value) {
  constexpr float kLargest = 65504.0f;
  if constexpr (kNetwork.states == States::f16) {
    if (fabsf(value) > kLargest) value = value < 0.0f ? -kLargest : kLargest;
    return device::narrow<device::kF16>(value);
  } else {
    return device::narrow<device::kBf16>(value);
  }
}
__device__ __forceinline__ unsigned narrow_states(float first, float second) {
  return static_cast<unsigned>(narrow_state(first)) | static_cast<unsigned>(narrow_state(second)) << 16;
}
__device__ __forceinline__ float widen_state(unsigned half) {
  return device::widen < kNarrowStates
             ? kStateElement
             : static_cast<int>(device::kBf16) > (static_cast<unsigned short>(half));
}

// Rounds states between two frames of one call, as they would be rounded in memory between two calls.
template <int kEach>
__device__ __forceinline__ void keep_states(float (&h)[kEach]) {
  if constexpr (kNarrowStates) {
#pragma unroll
    for (int n = 0; n < kEach; ++n) h[n] = widen_state(narrow_state(h[n]));
  }
}

// A lane's states: those from number `at`, a multiple of 4, of a phase's part of an agent's state, which
// begins at `part`; zeros where they do not exist. Streaming: of a batch they are next used after so many
// others that the L2 cannot hold them, and give up their place before values that are used again.
template <bool kStreams, int kEach>
__device__ __forceinline__ void load_states(const float* part, int at, bool exists, float (&h)[kEach]) {
#pragma unroll
  for (int n = 0; n < kEach; n += 4) {
    float4 value = make_float4(0, 0, 0, 0);
    if (exists) {
      if constexpr (kNarrowStates) {
        const auto* const from = reinterpret_cast<const uint2*>(part) + (at + n) / 4;
        const uint2 four = kStreams ? __ldcs(from) : *from;
        value = make_float4(widen_state(four.x & 0xffffu), widen_state(four.x >> 16),
                            widen_state(four.y & 0xffffu), widen_state(four.y >> 16));
      } else {
        const auto* const from = reinterpret_cast<const float4*>(part + at + n);
        value = kStreams ? __ldcs(from) : *from;
      }
    }
    h[n] = value.x, h[n + 1] = value.y, h[n + 2] = value.z, h[n + 3] = value.w;
  }
}
template <bool kStreams, int kEach>
__device__ __forceinline__ void store_states(const float (&h)[kEach], float* part, int at) {
  const auto put = [](auto* to, auto value) {
    if constexpr (kStreams) {
      __stcs(to, value);
    } else {
      *to = value;
    }
  };
#pragma unroll
  for (int n = 0; n < kEach; n += 4) {
    if constexpr (kNarrowStates) {
      put(reinterpret_cast<uint2*>(part) + (at + n) / 4,
          uint2{narrow_states(h[n], h[n + 1]), narrow_states(h[n + 2], h[n + 3])});
    } else {
      put(reinterpret_cast<float4*>(part + at + n), make_float4(h[n], h[n + 1], h[n + 2], h[n + 3]));
    }
  }
}

}  // namespace policy
}  // namespace exphil
