// The tiles of operands of policy/product_gradient_tensor.cu in shared memory, and the copies that fill them.
#pragma once

#include "kernels/common/device_memory.cuh"
#include "kernels/policy/gradient_arguments.cuh"

namespace exphil {
namespace policy {
namespace {

// A step of k of both operands. Four steps are under way at a time.
struct Tiles {
  float a[kTileRows * kTileDepth];
  float b[kTileColumns * kTileDepth];
};
constexpr int kStages = 4;
constexpr int kSumStride = kTileColumns + 8;  // of a tile's sums in shared memory
static_assert(kTileRows == 64 && kTileColumns == 64 && kTileDepth == 16 && kTileThreads == 128,
              "the indices below");

// Where element (i, k) of an operand is in its tile. Neighbours are those of its memory, fours along k or
// along i. Neither the copies of a warp nor its reads on tensor cores meet a bank twice.
template <bool kAlongK>
__device__ constexpr int place(int i, int k) {
  const int four = k / 4, one = k % 4;
  return kAlongK ? i * kTileDepth + (four ^ i / 2 % 4) * 4 + one
                 : (four * 4 + (one ^ four)) * kTileRows + (i ^ four * 8);
}

// The same of what lane l of a warp reads on tensor cores, q = l % 4: k = 4 q + (c ^ q), c from 0 to 3, of i
// = first + l / 4, first a multiple of 8.
template <bool kAlongK>
__device__ constexpr int lane_place(int first, int lane, int c) {
  const int q = lane % 4, own = lane / 4;
  return kAlongK ? first * kTileDepth + own * kTileDepth + (q ^ own / 2) * 4 + (c ^ q)
                 : c * kTileRows + q * 4 * kTileRows + ((first + own) ^ q * 8);
}
template <bool kAlongK>
constexpr bool places_agree() {
  for (int first = 0; first < kTileRows; first += 8) {
    for (int at = 0; at < 32 * 4; ++at) {
      const int lane = at / 4, c = at % 4, q = lane % 4;
      if (lane_place<kAlongK>(first, lane, c) != place<kAlongK>(first + lane / 4, 4 * q + (c ^ q)))
        return false;
    }
  }
  return true;
}
static_assert(places_agree<true>() && places_agree<false>(), "lane_place() is place()");

// The tiles of an operand of one piece: element (i, k) is at from[i stride + k], or at from[i + k stride].
// kCount: of i in a tile, 64 or 32.
template <int kCount, bool kAlongK>
class Operand {
 public:
  // Elements [first, count) of i, from k = begin on.
  __device__ __forceinline__ void begin(const float* from, long long stride, long long first, long long count,
                                        long long begin) {
    const long long left = count - first;
    left_ = left < kCount ? static_cast<int>(left) : kCount;
    from += kAlongK ? first * stride + begin : first + begin * stride;
    aligned_ = stride % 4 == 0 && reinterpret_cast<unsigned long long>(from) % 16 == 0;
    stride_ = stride;
    from_ = from;
  }

  // Begins to copy the next kTileDepth steps, of which left_in_k exist; zeros elsewhere.
  __device__ __forceinline__ void copy(float* tile, int left_in_k) {
    if (!aligned_) {
      copy_ones(tile, left_in_k);
    } else if (left_ == kCount && left_in_k >= kTileDepth) {
      copy_fours(tile);
    } else {
      copy_some(tile, left_in_k);
    }
    from_ += kAlongK ? kTileDepth : kTileDepth * stride_;
  }

 private:
  __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.x); }

  // A thread copies elements `thread`, `thread` + kTileThreads, ...: in fours, or one at a time.
  // call(i, k, from) for each of its fours.
  template <class Call>
  __device__ __forceinline__ void for_each_four(Call call) const {
    constexpr int kAcross = (kAlongK ? kTileDepth : kCount) / 4, kApart = kTileThreads / kAcross;
    const int across = thread() % kAcross * 4, down = thread() / kAcross;
    const float* const from = from_ + down * stride_ + across;
#pragma unroll
    for (int j = 0; j < kCount * kTileDepth / 4 / kTileThreads; ++j) {
      const int i = kAlongK ? down + j * kApart : across, k = kAlongK ? across : down + j * kApart;
      call(i, k, from + j * kApart * stride_);
    }
  }
  __device__ __forceinline__ void copy_fours(float* tile) const {
    for_each_four([&](int i, int k, const float* from) {
      device::copy_async<16>(tile + place<kAlongK>(i, k), from, true);
    });
  }
  // Of a tile that is not whole.
  __device__ __forceinline__ void copy_some(float* tile, int left_in_k) const {
    for_each_four([&](int i, int k, const float* from) {
      const int down = kAlongK ? left_ - i : left_in_k - k, across = kAlongK ? left_in_k - k : left_ - i;
      const int exist = down <= 0 || across <= 0 ? 0 : across < 4 ? across : 4;
      device::copy_async_some(tile + place<kAlongK>(i, k), from, 4 * exist);
    });
  }
  // Not all at once: longer code takes longer to be fetched.
  __device__ __forceinline__ void copy_ones(float* tile, int left_in_k) const {
    constexpr int kAcross = kAlongK ? kTileDepth : kCount, kApart = kTileThreads / kAcross;
    const int across = thread() % kAcross;
    int down = thread() / kAcross;
    const float* from = from_ + down * stride_ + across;
#pragma unroll 4
    for (int j = 0; j < kCount * kTileDepth / kTileThreads; ++j) {
      const int i = kAlongK ? down : across, k = kAlongK ? across : down;
      device::copy_async<4>(tile + place<kAlongK>(i, k), from, i < left_ && k < left_in_k);
      down += kApart, from += kApart * stride_;
    }
  }

  const float* from_;
  long long stride_;
  int left_;
  bool aligned_;
};

}  // namespace
}  // namespace policy
}  // namespace exphil
