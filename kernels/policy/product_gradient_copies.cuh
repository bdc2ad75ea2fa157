// The copies of operands of policy/product_gradient_wide.cu to shared memory. Compiled with -D: STRANDS.
#pragma once

#include "kernels/common/device_memory.cuh"
#include "kernels/policy/gradient_arguments.cuh"

namespace exphil {
namespace policy {
namespace {

// A thread's number in its strand.
__device__ __forceinline__ int own_thread() {
  return static_cast<int>(threadIdx.x) % kTileThreads;
}
__device__ __forceinline__ int strand() {
  return STRANDS == 1 ? 0 : static_cast<int>(threadIdx.x) / kTileThreads;
}
__device__ __forceinline__ void strand_sync() {
  if constexpr (STRANDS == 1) {
    __syncthreads();
  } else {
    device::barrier(1 + strand(), kTileThreads);
  }
}

// What the threads of a strand have copied of a step.
struct Copied {
  float a[kTileRows * kTileDepth], b[kTileColumns * kTileDepth];
};

// Copies an operand that lies along k, element e, k at from[e stride + k]: a thread what it takes later, four
// k of two elements. Elements that do not exist are the last one's, for sums that nobody reads.
class AlongK {
 public:
  // From k = begin on; the thread's four begin `own` later.
  __device__ __forceinline__ void begin(const float* from, long long stride, long long count, long long begin,
                                        long long element, long long second, int own) {
    element = element < count ? element : count - 1, second = second < count ? second : count - 1;
    fours_ = stride % 4 == 0 && reinterpret_cast<unsigned long long>(from + begin) % 16 == 0;
    at_ = from + element * stride + begin + own, own_ = own;
    second_ = static_cast<int>((second - element) * stride);
  }
  __device__ __forceinline__ void skip(int steps) { at_ += steps * kTileDepth; }

  // A step, of which `left` k exist; zeros behind them.
  __device__ __forceinline__ void copy(int left, float* to) const {
    left -= own_;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float* const from = at_ + i * second_;
      float* const place = to + (i * kTileThreads + own_thread()) * 4;
      if (fours_) {
        device::copy_async_some(place, from, 4 * (left < 0 ? 0 : left < 4 ? left : 4));
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) device::copy_async<4>(place + j, from + j, j < left);
      }
    }
  }
  // Four k of element i.
  __device__ __forceinline__ static void take(const float* from, int i, float (&to)[4]) {
    const float4 four = *reinterpret_cast<const float4*>(from + (i * kTileThreads + own_thread()) * 4);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
  }

 private:
  const float* at_ = nullptr;
  int second_ = 0, own_ = 0;
  bool fours_ = false;
};

// Copies an operand that lies across k, element e, k at from[e + k stride], to a tile that all threads read;
// zeros where there is none. A thread copies four elements of two k.
class AcrossK {
 public:
  // From k = begin and element `first` on.
  __device__ __forceinline__ void begin(const float* from, long long stride, long long count, long long begin,
                                        long long first) {
    const long long left = count - first - four();
    bytes_ = left < 0 ? 0 : left < 4 ? static_cast<int>(left) * 4 : 16;
    fours_ = stride % 4 == 0 && reinterpret_cast<unsigned long long>(from) % 16 == 0;
    stride_ = static_cast<int>(stride);
    at_ = from + first + four() + (begin + own()) * stride;
  }
  __device__ __forceinline__ void skip(int steps) { at_ += steps * kTileDepth * stride_; }

  // A step, of which `left` k exist.
  __device__ __forceinline__ void copy(int left, float* to) const {
#pragma unroll
    for (int k = 0; k < kTileDepth; k += kTileDepth / 2) {
      const int bytes = own() + k < left ? bytes_ : 0;
      const float* const from = at_ + k * stride_;
      float* const four = to + place(AcrossK::four(), own() + k);
      if (fours_) {
        device::copy_async_some(four, from, bytes);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) device::copy_async<4>(four + j, from + j, 4 * j < bytes);
      }
    }
  }
  // Element i, k. Fours are neighbours. Reads of a warp meet no bank twice where its lanes have neighbours of
  // one k, or of 8 elements k that differ in k / 4.
  __device__ __forceinline__ static int place(int i, int k) {
    return k * kTileColumns + (i ^ k / 4 * 8);
  }

 private:
  __device__ __forceinline__ static int four() {
    return own_thread() % 16 * 4;
  }
  __device__ __forceinline__ static int own() {
    return own_thread() / 16;
  }

  const float* at_ = nullptr;
  int stride_ = 0, bytes_ = 0;
  bool fours_ = false;
};
template <bool kAlong>
struct CopiesOf {
  using Type = AlongK;
};
template <>
struct CopiesOf<false> {
  using Type = AcrossK;
};

}  // namespace
}  // namespace policy
}  // namespace exphil
