// States in registers and in memory, and how they pass between tiles and lanes. Part of scan/chunked.cu.
#pragma once

#include "kernels/scan/chunked.cuh"

namespace exphil {
namespace scan_chunked {

EXPHIL_DEVICE State make_state(const float* floats) {
#if COMPLEX
  return make_float2(floats[0], floats[1]);
#else
  return floats[0];
#endif
}
// The values of b or c for kPassStates states: at kAhead steps from shared memory, or where constant from
// memory.
EXPHIL_DEVICE void load_rows(const float* from, State (&to)[kAhead][kPassStates]) {
  float flat[kAhead * kUnit];
  device::load_floats(from, flat);
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
#pragma unroll
    for (int u = 0; u < kPassStates; ++u) to[i][u] = make_state(flat + i * kUnit + kFloats * u);
}
EXPHIL_DEVICE void load_constant(const Arguments& p, const void* data, const Place& s, int n,
                                 State (&to)[kPassStates]) {
  const auto* from = static_cast<const ProjectionStorage*>(data) +
                     (static_cast<long long>(channel_of(p, s)) * STATE + n) * kFloats;
  float flat[kPassStates * kFloats];
#pragma unroll
  for (int i = 0; i < kPassStates * kFloats; ++i)
    flat[i] = s.live && n * kFloats + i < STATE * kFloats ? device::widen<kProjection>(from[i]) : 0.0f;
#pragma unroll
  for (int u = 0; u < kPassStates; ++u) to[u] = make_state(flat + kFloats * u);
}

EXPHIL_DEVICE State load_state(const float* from) {
  float both[kFloats];
#pragma unroll
  for (int f = 0; f < kFloats; ++f)
    both[f] = Rule::kStateScale == 1.0f ? from[f] : __fmul_rn(from[f], Rule::kStateScale);
  return make_state(both);
}
EXPHIL_DEVICE void store_state(float* to, State h) {
#if COMPLEX
  to[0] = h.x, to[1] = h.y;
#else
  to[0] = Rule::kStateScale == 1.0f ? h : __fmul_rn(h, 1.0f / Rule::kStateScale);
#endif
}

// The states carried into a tile, in shared memory: every float and the number of its tile in one word that
// is written and read atomically, so that no fence is needed. The next write of a word depends on its value,
// so it cannot come too early.
using Word = unsigned long long;
using Address = unsigned;  // in shared memory; where there are clusters, of any of its blocks
// An address in a block of the cluster; without clusters, in this block.
EXPHIL_DEVICE Address shared_address(const void* pointer, int block) {
  return kBlocks > 1 ? cluster_address(pointer, block) : scan::shared_address(pointer);
}
#if CLUSTER_BLOCKS > 1
#define SCOPE "cluster"
#define TARGET "shared::cluster"
#else
#define SCOPE "cta"
#define TARGET "shared"
#endif
EXPHIL_DEVICE void send(Address to, float value, unsigned tile) {
  asm volatile("st.relaxed." SCOPE "." TARGET ".u64 [%0], %1;" ::"r"(to),
               "l"(static_cast<Word>(tile) << 32 | __float_as_uint(value))
               : "memory");
}
EXPHIL_DEVICE Word peek(const Word* from) {
  Word word;
  asm volatile("ld.relaxed." SCOPE ".shared.u64 %0, [%1];"
               : "=l"(word)
               : "r"(scan::shared_address(from))
               : "memory");
  return word;
}
// Barrier of every thread of the block, or of the cluster, with visibility of earlier writes.
EXPHIL_DEVICE void sync_all() {
#if CLUSTER_BLOCKS > 1
  __syncwarp();
  cluster_arrive();
  cluster_wait();
#else
  __syncthreads();
#endif
}

constexpr int kWords = kPassStates * kFloats;
struct alignas(kWords > 1 ? 16 : 8) Carried {
  Word of[kWords];
};
EXPHIL_DEVICE void send(Address to, const State (&h)[kPassStates], unsigned tile) {
#pragma unroll
  for (int u = 0; u < kPassStates; ++u) {
#if COMPLEX
    send(to + 16 * u, h[u].x, tile), send(to + 16 * u + 8, h[u].y, tile);
#else
    send(to + 8 * u, h[u], tile);
#endif
  }
}
EXPHIL_DEVICE void receive(const Carried* from, unsigned tile, State (&h)[kPassStates]) {
  Word words[kWords];
  bool there;
  do {
    if constexpr (kWords > 1) {
#pragma unroll
      for (int i = 0; i < kWords; i += 2) {
        asm volatile("ld.relaxed." SCOPE ".shared.v2.u64 {%0, %1}, [%2];"
                     : "=l"(words[i]), "=l"(words[i + 1])
                     : "r"(scan::shared_address(&from->of[i]))
                     : "memory");
      }
    } else {
      words[0] = peek(from->of);
    }
    there = true;
#pragma unroll
    for (int i = 0; i < kWords; ++i) there = there && static_cast<unsigned>(words[i] >> 32) == tile;
  } while (kTurns > 1 && __any_sync(0xffffffffu, !there));
  float flat[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) flat[i] = __uint_as_float(static_cast<unsigned>(words[i]));
#pragma unroll
  for (int u = 0; u < kPassStates; ++u) h[u] = make_state(flat + kFloats * u);
}

// The value of the lane BY before this one, and whether that lane exists (else this lane's value).
template <int BY>
EXPHIL_DEVICE float shuffle_up(float v, bool* exists) {
  float result;
  int there;
  asm volatile("{\n .reg .pred p;\n shfl.sync.up.b32 %0|p, %2, %3, 0, 0xffffffff;\n selp.s32 %1, 1, 0, p;\n}"
               : "=f"(result), "=r"(there)
               : "f"(v), "n"(BY));
  *exists = there != 0;
  return result;
}
template <int BY>
EXPHIL_DEVICE float2 shuffle_up(float2 v, bool* exists) {
  return make_float2(shuffle_up<BY>(v.x, exists), shuffle_up<BY>(v.y, exists));
}

}  // namespace scan_chunked
}  // namespace exphil
