// The names of CUDA C++ that the kernels use, for the emulated grid (grid.hpp): vector types,
// intrinsics, shuffles, barriers and shared memory. Included in front of a kernel's source by the
// fake NVRTC, and precompiled: what depends on a kernel's macros is in cuda_blocks.hpp. The functions of
// mathematics are declared here, because to read a precompiled <cmath> takes a fifth of what it takes to
// compile a small kernel.
#pragma once

#include <time.h>

// The grid is run by emulation/grid.cpp, which is compiled once.
#define EXPHIL_GRID_STATE extern __attribute__((visibility("default")))

#include "support/associative_names.hpp"
#include "support/grid.hpp"

// One copy for all fibres of the thread that runs the grid.
#define __shared__ thread_local
#define __align__(bytes) __attribute__((aligned(bytes)))

// NOLINTBEGIN: CUDA's own names.
extern "C" {
float expf(float), exp2f(float), logf(float), log1pf(float), sqrtf(float), fmaf(float, float, float);
float fabsf(float), floorf(float), ceilf(float), rintf(float), fmaxf(float, float), fminf(float, float);
double exp(double), log(double), log1p(double), sqrt(double);
}
inline float exp(float v) {
  return expf(v);
}
inline float log(float v) {
  return logf(v);
}
inline float log1p(float v) {
  return log1pf(v);
}
inline float sqrt(float v) {
  return sqrtf(v);
}

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(8) ushort4 {
  unsigned short x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

inline float __fadd_rn(float p, float q) {
  return p + q;
}
inline float __fsub_rn(float p, float q) {
  return p - q;
}
inline float __fmul_rn(float p, float q) {
  return p * q;
}
inline float __fdiv_rn(float p, float q) {
  return p / q;
}
inline float __fsqrt_rn(float v) {
  return sqrtf(v);
}
inline float __fmaf_rn(float p, float q, float r) {
  return fmaf(p, q, r);
}
inline float __fdividef(float p, float q) {
  return p / q;
}
inline unsigned __float_as_uint(float value) {
  return exphil::core::f32_bits(value);
}
inline float __uint_as_float(unsigned bits) {
  return exphil::core::f32_from_bits(bits);
}
// Each of the low four digits of `selector` chooses a byte of p (0 to 3) or q (4 to 7).
inline unsigned __byte_perm(unsigned p, unsigned q, unsigned selector) {
  const std::uint64_t both = std::uint64_t{q} << 32 | p;
  unsigned bytes = 0;
  for (unsigned i = 0; i < 4; ++i) {
    bytes |= static_cast<unsigned>(both >> 8 * (selector >> 4 * i & 7u) & 0xffu) << 8 * i;
  }
  return bytes;
}
inline float rsqrtf(float v) {
  return 1.0f / sqrtf(v);
}
template <class T>
constexpr const T& max(const T& p, const T& q) {
  return p < q ? q : p;
}
template <class T>
constexpr const T& min(const T& p, const T& q) {
  return q < p ? q : p;
}

template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
void __stcg(T* to, T value) {
  *to = value;
}

inline void __syncthreads() {
  exphil::grid::sync_block();
}
inline int __syncthreads_and(int value) {
  return exphil::grid::count_in_block(value != 0) == static_cast<int>(blockDim.x);
}
inline int __syncthreads_or(int value) {
  return exphil::grid::count_in_block(value != 0) > 0;
}
inline void __syncwarp() {
  exphil::grid::sync_warp();
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return exphil::grid::shuffle(value, lane);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane, int width) {
  return exphil::grid::shuffle(value, static_cast<int>(threadIdx.x) / width * width % 32 + lane % width);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return exphil::grid::shuffle(value, static_cast<int>(threadIdx.x % 32) ^ mask);
}
// NOLINTEND

namespace exphil::device {
inline float exp2_fast(float v) {
  return exp2f(v);
}
inline float reciprocal(float v) {
  return 1.0f / v;
}
inline float half_to_float(unsigned short half) {
  return core::f16_to_f32(half);
}
inline unsigned short float_to_half(float value) {
  return core::f32_to_f16(value);
}
inline void barrier(int number, int threads) {
  grid::sync_some(number, threads);
}
inline void barrier_arrive(int number, int threads) {
  grid::arrive_some(number, threads);
}

// What tensor cores see of a value.
inline unsigned tf32_bits(unsigned bits) {
  return bits & 0xffffe000u;
}
inline float tf32(float value) {
  return __uint_as_float(tf32_bits(__float_as_uint(value)));
}

// Of kernels/common/tensor.cuh.
inline void multiply_tf32(const unsigned (&weights)[4], const unsigned (&rows)[2], float (&sums)[4]) {
  struct Lane {
    float weights[4], rows[2];
  };
  static Lane block[32][32];  // the fibres of a block are one thread's
  Lane* const warp = block[threadIdx.x / 32];
  const unsigned lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) warp[lane].weights[i] = __uint_as_float(tf32_bits(weights[i]));
  for (int i = 0; i < 2; ++i) warp[lane].rows[i] = __uint_as_float(tf32_bits(rows[i]));
  __syncwarp();
  for (unsigned i = 0; i < 4; ++i) {
    const Lane *const of_column = warp + lane / 4 * 4, *const of_row = warp + (lane % 4 * 2 + i % 2) * 4;
    float sum = sums[i];
    for (unsigned slot = 0; slot < 4; ++slot) {
      sum = __fmaf_rn(of_column[slot].weights[i / 2], of_row[slot].rows[0], sum);
    }
    for (unsigned slot = 0; slot < 4; ++slot) {
      sum = __fmaf_rn(of_column[slot].weights[i / 2 + 2], of_row[slot].rows[1], sum);
    }
    sums[i] = sum;
  }
  __syncwarp();
}

// Of kernels/common/warpgroup.cuh. Products end when they begin.
template <int kStride>
struct WideWeights {
  using At = const float4*;
  explicit WideWeights(const float4* groups) : first(groups) {}
  At at(int group, int column) const { return first + group * kStride + column; }
  const float4* first;
};
inline void publish_wide() {}
inline void begin_wide() {}
inline void commit_wide() {}
template <int kTiles, int kSums>
void await_wide(float (&)[kTiles][kSums]) {}
// The slots are written out: a loop over them takes three times as long.
template <bool kAdd, int kStride, int kSums>
void multiply_wide(const unsigned (&rows)[4], const float4* weights, float (&sums)[kSums]) {
  struct Lane {
    float rows[4];
  };
  static Lane block[32][32];
  Lane* const warp = block[threadIdx.x / 32];
  const unsigned lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) warp[lane].rows[i] = __uint_as_float(tf32_bits(rows[i]));
  __syncwarp();
  const Lane* const slots = warp + lane / 4 * 4;
  const auto add_four = [&](const float4& of_column, unsigned row, float sum) {
    sum = __fmaf_rn(tf32(of_column.x), slots[0].rows[row], sum);
    sum = __fmaf_rn(tf32(of_column.y), slots[1].rows[row], sum);
    sum = __fmaf_rn(tf32(of_column.z), slots[2].rows[row], sum);
    return __fmaf_rn(tf32(of_column.w), slots[3].rows[row], sum);
  };
  for (unsigned i = 0; i < kSums; ++i) {
    const float4* const of_column = weights + i / 4 * 8 + lane % 4 * 2 + i % 2;
    const unsigned row = i / 2 % 2;
    const float sum = add_four(of_column[0], row, kAdd ? sums[i] : 0.0f);
    sums[i] = add_four(of_column[kStride], row + 2, sum);
  }
  __syncwarp();
}

// Of kernels/common/cluster.cuh.
template <class T>
T* launder(T* pointer) {
  return pointer;
}
inline int launder(int value) {
  return value;
}
template <class T>
T* launder_shared(T* pointer) {
  return pointer;
}
}  // namespace exphil::device

// Of kernels/policy/ptx.cuh.
namespace exphil::policy {
inline void grid_sync() {
  grid::sync_grid();
}
using device::launder;
inline void store_system(unsigned long long* to, unsigned long long value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
}
inline unsigned long long load_system(const unsigned long long* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
inline void fence_system() {}
inline unsigned long long nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long long>(now.tv_sec) * 1'000'000'000 +
         static_cast<unsigned long long>(now.tv_nsec);
}
}  // namespace exphil::policy
