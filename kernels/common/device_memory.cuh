// Asynchronous copies and wide accesses of memory, in inline PTX, so that NVRTC needs no toolkit header at
// run time. Included by kernels only.
#pragma once

#include "kernels/common/device_math.cuh"

namespace exphil {
namespace device {

// Copies BYTES (2, 4, 8 or 16) from global to shared memory asynchronously, or writes zeros where `valid` is
// false. Copies of two bytes, and all copies before compute capability 8.0, are synchronous. copies_done()
// waits for this thread's copies; commit_copies() groups the copies since its last call, and wait_copies<N>()
// waits until at most the last N groups are in flight.
template <int BYTES>
EXPHIL_DEVICE void copy_async(void* shared, const void* global, bool valid) {
  if constexpr (BYTES == 2) {
    *static_cast<unsigned short*>(shared) = valid ? *static_cast<const unsigned short*>(global) : 0;
    return;
  }
#if __CUDA_ARCH__ >= 800
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? BYTES : 0;
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(global), "n"(BYTES),
                 "r"(bytes)
                 : "memory");
  }
#else
  if constexpr (BYTES == 16) {
    *static_cast<float4*>(shared) =
        valid ? *static_cast<const float4*>(global) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  } else if constexpr (BYTES == 8) {
    *static_cast<float2*>(shared) = valid ? *static_cast<const float2*>(global) : make_float2(0.0f, 0.0f);
  } else {
    *static_cast<float*>(shared) = valid ? *static_cast<const float*>(global) : 0.0f;
  }
#endif
}

// Of 16 bytes the first `bytes`, a multiple of 4; zeros behind them.
EXPHIL_DEVICE void copy_async_some(float* shared, const float* global, int bytes) {
#if __CUDA_ARCH__ >= 800
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(bytes)
               : "memory");
#else
  for (int i = 0; i < 4; ++i) shared[i] = 4 * i < bytes ? global[i] : 0.0f;
#endif
}
EXPHIL_DEVICE void copies_done() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
EXPHIL_DEVICE void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int Left>
EXPHIL_DEVICE void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
#endif
}

// 16 bytes of global memory, aligned, by a load that stays where it stands among the volatile instructions,
// so that it is under way while they are waited for. Where registers are short, ptxas still moves it behind
// them.
EXPHIL_DEVICE float4 load_ahead(const float* from) {
#if __CUDA_ARCH__ >= 750
  float4 value;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(from));
  return value;
#else
  return *reinterpret_cast<const float4*>(from);
#endif
}
EXPHIL_DEVICE float2 load_ahead_two(const float* from) {  // 8 bytes
#if __CUDA_ARCH__ >= 750
  float2 value;
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(from));
  return value;
#else
  return *reinterpret_cast<const float2*>(from);
#endif
}

// Brings the line of an address of global memory to the L2.
EXPHIL_DEVICE void fetch_ahead(const void* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#else
  (void)from;
#endif
}

// Writes 16 or 8 bytes, aligned to their size, to global memory in one access: the compiler takes some stores
// of a float4 apart. For results only: the compiler may move the store past other accesses of memory.
EXPHIL_DEVICE void store_wide(void* to, float4 value) {
#if __CUDA_ARCH__ >= 750
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(value.x), "f"(value.y), "f"(value.z),
               "f"(value.w));
#else
  *static_cast<float4*>(to) = value;
#endif
}
EXPHIL_DEVICE void store_wide(void* to, uint2 value) {
#if __CUDA_ARCH__ >= 750
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(value.x), "r"(value.y));
#else
  *static_cast<uint2*>(to) = value;
#endif
}
EXPHIL_DEVICE void store_wide(void* to, float2 value) {
  store_wide(to, uint2{__float_as_uint(value.x), __float_as_uint(value.y)});
}

// COUNT consecutive floats (a power of two, aligned to its size up to 16 bytes) in as few accesses as
// possible.
template <int COUNT>
EXPHIL_DEVICE void load_floats(const float* from, float (&to)[COUNT]) {
  if constexpr (COUNT % 4 == 0) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + i);
      to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
  } else if constexpr (COUNT == 2) {
    const float2 v = *reinterpret_cast<const float2*>(from);
    to[0] = v.x, to[1] = v.y;
  } else {
    to[0] = from[0];
  }
}
template <int COUNT>
EXPHIL_DEVICE void store_floats(float* to, const float (&from)[COUNT]) {
  if constexpr (COUNT % 4 == 0) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
      *reinterpret_cast<float4*>(to + i) = make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
    }
  } else if constexpr (COUNT == 2) {
    *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
  } else {
    to[0] = from[0];
  }
}

}  // namespace device
}  // namespace exphil
