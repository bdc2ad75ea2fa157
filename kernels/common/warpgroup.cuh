// Products of tf32x3 (common/tensor.cuh) by warpgroups, four consecutive warps each: wgmma, of compute
// capability 9.0 alone. A warpgroup multiplies 64 rows of X, which its threads hold in registers, by 8 to 64
// columns of weights in shared memory over 8 k, and goes on while it computes. A result has the bits of
// multiply_tf32x3(): the same three products for each 8 k, in the same order, which the tests on a GPU
// compare. With EXPHIL_EMULATED_GRID the tests supply WideWeights and multiply_wide().
#pragma once

#include "kernels/common/tensor.cuh"

// Whether kernels are compiled for a device that has them.
#if defined(EXPHIL_EMULATED_GRID) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define EXPHIL_WARPGROUPS 1
#else
#define EXPHIL_WARPGROUPS 0
#endif

#if EXPHIL_WARPGROUPS

namespace exphil {
namespace device {

constexpr int kWarpgroup = 128, kWarpgroupRows = 64;

// Of the 16 rows of a warp, with q = lane % 4: of row lane / 4 slots q and q + 4 are numbers 0 and 2, of row
// lane / 4 + 8 numbers 1 and 3.
struct WideRows {
  unsigned high[4], low[4];
};
EXPHIL_DEVICE WideRows wide_rows(float first, float second, float first_later, float second_later) {
  WideRows made;
  split_tf32<0x1000>(first, &made.high[0], &made.low[0]);
  split_tf32<0x1000>(second, &made.high[1], &made.low[1]);
  split_tf32<0x1000>(first_later, &made.high[2], &made.low[2]);
  split_tf32<0x1000>(second_later, &made.high[3], &made.low[3]);
  return made;
}

// Sums: number i is of the row and of the column, from the first ones of the warp and of the tile on.
EXPHIL_DEVICE int wide_row(int lane, int i) {
  return lane / 4 + i / 2 % 2 * 8;
}
EXPHIL_DEVICE int wide_column(int lane, int i) {
  return i / 4 * 8 + lane % 4 * 2 + i % 2;
}

#ifndef EXPHIL_EMULATED_GRID
// Weights in shared memory: groups [slots / 4][kStride columns] of four slots. The tensor cores read them
// through an address of their own, in which 8 columns of a group are consecutive, and two groups make 8
// slots. It has no room for the number of the block in its cluster, which an address otherwise has.
template <int kStride>
class WideWeights {
 public:
  using At = unsigned long long;
  explicit EXPHIL_DEVICE WideWeights(const float4* first)
      : first_((static_cast<unsigned>(__cvta_generic_to_shared(first)) & 0x3ffff) >> 4 | kStride << 16) {}
  // The 8 slots of groups `group` and `group` + 1, from a column on, a multiple of 8.
  EXPHIL_DEVICE At at(int group, int column) const {
    return static_cast<At>(8) << 32 | (first_ + static_cast<unsigned>(group * kStride + column));
  }

 private:
  unsigned first_;  // the lower half of that address
};

// From begin_wide() to await_wide() a warpgroup's products are under way: neither their rows nor their sums
// may change, and what was written to shared memory before is visible to them after publish_wide() and a
// barrier.
EXPHIL_DEVICE void publish_wide() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
EXPHIL_DEVICE void begin_wide() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
EXPHIL_DEVICE void commit_wide() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kTiles, int kSums>
EXPHIL_DEVICE void await_wide(float (&sums)[kTiles][kSums]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[n][i])::"memory");  // not read before
  }
}

// sums = 64 rows of 8 slots times so many columns of weights, added to what they were where kAdd.
#define EXPHIL_WIDE(columns, sums, rows, weights, add)                                                \
  "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, " add ", 0;\n\twgmma.mma_async.sync.aligned.m64n" columns \
  "k8.f32.tf32.tf32 {" sums "}, {" rows "}, " weights ", add, 1, 1;\n\t}"
#define EXPHIL_FOUR(i) "+f"(sums[i]), "+f"(sums[(i) + 1]), "+f"(sums[(i) + 2]), "+f"(sums[(i) + 3])
#define EXPHIL_FACTORS "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(weights), "n"(kAdd ? 1 : 0)
template <bool kAdd, int kStride>
EXPHIL_DEVICE void multiply_wide(const unsigned (&rows)[4], unsigned long long weights, float (&sums)[4]) {
  asm volatile(EXPHIL_WIDE("8", "%0, %1, %2, %3", "%4, %5, %6, %7", "%8", "%9")
               : EXPHIL_FOUR(0)
               : EXPHIL_FACTORS);
}
template <bool kAdd, int kStride>
EXPHIL_DEVICE void multiply_wide(const unsigned (&rows)[4], unsigned long long weights, float (&sums)[8]) {
  asm volatile(EXPHIL_WIDE("16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8, %9, %10, %11", "%12", "%13")
               : EXPHIL_FOUR(0), EXPHIL_FOUR(4)
               : EXPHIL_FACTORS);
}
template <bool kAdd, int kStride>
EXPHIL_DEVICE void multiply_wide(const unsigned (&rows)[4], unsigned long long weights, float (&sums)[12]) {
  asm volatile(EXPHIL_WIDE("24", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11", "%12, %13, %14, %15",
                           "%16", "%17")
               : EXPHIL_FOUR(0), EXPHIL_FOUR(4), EXPHIL_FOUR(8)
               : EXPHIL_FACTORS);
}
template <bool kAdd, int kStride>
EXPHIL_DEVICE void multiply_wide(const unsigned (&rows)[4], unsigned long long weights, float (&sums)[16]) {
  asm volatile(EXPHIL_WIDE("32", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15",
                           "%16, %17, %18, %19", "%20", "%21")
               : EXPHIL_FOUR(0), EXPHIL_FOUR(4), EXPHIL_FOUR(8), EXPHIL_FOUR(12)
               : EXPHIL_FACTORS);
}
template <bool kAdd, int kStride>
EXPHIL_DEVICE void multiply_wide(const unsigned (&rows)[4], unsigned long long weights, float (&sums)[32]) {
  asm volatile(EXPHIL_WIDE("64",
                           "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                           "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31",
                           "%32, %33, %34, %35", "%36", "%37")
               : EXPHIL_FOUR(0), EXPHIL_FOUR(4), EXPHIL_FOUR(8), EXPHIL_FOUR(12), EXPHIL_FOUR(16),
                 EXPHIL_FOUR(20), EXPHIL_FOUR(24), EXPHIL_FOUR(28)
               : EXPHIL_FACTORS);
}
#undef EXPHIL_WIDE
#undef EXPHIL_FOUR
#undef EXPHIL_FACTORS
#endif

// Begins sums[n] = 8 kSlots k of the rows, of which tile i of 8 slots is x[i], times the columns of tile n,
// the small products first; `group` is the first of the groups of weights, two for 8 slots. Tiles take turns:
// a product that follows another one of the same sums waits for it.
template <int kSlots, int kTiles, int kSums, int kStride>
EXPHIL_DEVICE void begin_segment_wide(const WideRows (&x)[kSlots], const WideWeights<kStride>& high,
                                      const WideWeights<kStride>& low, int group,
                                      float (&sums)[kTiles][kSums]) {
  constexpr int kColumns = 2 * kSums;
  begin_wide();
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int at = group + 2 * i;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      if (i == 0) {
        multiply_wide<false, kStride>(x[i].high, low.at(at, n * kColumns), sums[n]);
      } else {
        multiply_wide<true, kStride>(x[i].high, low.at(at, n * kColumns), sums[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      multiply_wide<true, kStride>(x[i].low, high.at(at, n * kColumns), sums[n]);
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      multiply_wide<true, kStride>(x[i].high, high.at(at, n * kColumns), sums[n]);
    }
  }
  commit_wide();
}

}  // namespace device
}  // namespace exphil

#endif
