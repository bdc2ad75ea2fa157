// What the two associative-scan kernels share: warp and memory primitives, the stored element types, a cursor
// over one sequence, and the hand-over between blocks. Included by associative_columns.cuh and
// associative_rows.cuh. With EXPHIL_EMULATED_GRID the primitives come from the includer: the C++ tests run
// the kernels on the CPU, fibre by fibre.
//
// Hand-over: every block publishes the Summary of its tile as soon as it has it, then waits for the summaries
// before it in its window and for the state that the window before left, and applies them in time's order. No
// block looks at what happens to be ready, so the result does not depend on timing. A block waits only for
// blocks with a smaller blockIdx.x; GPUs start blocks in that order, which CUB's DeviceScan relies on too.
#pragma once

#include "associative_arguments.cuh"
#include "associative_ops.cuh"

namespace exphil {
namespace associative {

#ifndef EXPHIL_EMULATED_GRID
#define EXPHIL_DEVICE __device__ __forceinline__
#define EXPHIL_UNROLL _Pragma("unroll")
#define EXPHIL_UNROLL_NOT _Pragma("unroll 1")

EXPHIL_DEVICE void sync_block() {
  __syncthreads();
}
EXPHIL_DEVICE void sync_warp() {
  __syncwarp();
}
EXPHIL_DEVICE unsigned lane_above(unsigned word, int distance) {
  return __shfl_up_sync(0xffffffffu, word, distance);
}
EXPHIL_DEVICE unsigned from_lane(unsigned word, int lane) {
  return __shfl_sync(0xffffffffu, word, lane);
}

EXPHIL_DEVICE void wait_for(const unsigned* flag) {
  unsigned value;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  } while (value == 0);
}
EXPHIL_DEVICE void raise_flag(unsigned* flag) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1u) : "memory");
}

// Hides where a value comes from, so that the compiler computes addresses again for the stores instead of
// holding those of the loads in registers.
EXPHIL_DEVICE long long forget(long long value) {
  asm volatile("" : "+l"(value));
  return value;
}

EXPHIL_DEVICE float half_to_float(unsigned short half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}
EXPHIL_DEVICE unsigned short float_to_half(float value) {
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}
EXPHIL_DEVICE unsigned float_bits(float value) {
  return __float_as_uint(value);
}
EXPHIL_DEVICE float bits_float(unsigned bits) {
  return __uint_as_float(bits);
}
#endif

// The numbers are those of core::Dtype, and part of the kernels' -D interface.
enum class Element : int { f32 = 0, f16 = 1, bf16 = 2, c64 = 3, s32 = 5, s64 = 6 };

template <Element E>
struct Storage;
template <class T>
struct PlainStorage {
  using Stored = T;
  using Value = T;
  static EXPHIL_DEVICE Value load(const Stored* from) { return *from; }
  static EXPHIL_DEVICE void store(Stored* to, Value value) { *to = value; }
};
template <>
struct Storage<Element::f32> : PlainStorage<float> {};
template <>
struct Storage<Element::s32> : PlainStorage<int> {};
template <>
struct Storage<Element::s64> : PlainStorage<long long> {};
template <>
struct Storage<Element::c64> {
  struct alignas(8) Stored {
    float re, im;
  };
  using Value = Complex<float>;
  static EXPHIL_DEVICE Value load(const Stored* from) {
    const Stored stored = *from;
    return {stored.re, stored.im};
  }
  static EXPHIL_DEVICE void store(Stored* to, Value value) { *to = {value.re, value.im}; }
};
template <>
struct Storage<Element::f16> {
  using Stored = unsigned short;
  using Value = float;
  static EXPHIL_DEVICE Value load(const Stored* from) { return half_to_float(*from); }
  static EXPHIL_DEVICE void store(Stored* to, Value value) { *to = float_to_half(value); }
};
template <>
struct Storage<Element::bf16> {
  using Stored = unsigned short;
  using Value = float;
  static EXPHIL_DEVICE Value load(const Stored* from) {
    return bits_float(static_cast<unsigned>(*from) << 16);
  }
  // To nearest even, in integers: sm_75 has no such conversion.
  static EXPHIL_DEVICE void store(Stored* to, Value value) {
    const unsigned bits = float_bits(value);
    const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    *to = static_cast<Stored>(value != value ? (bits >> 16) | 0x40u : rounded);
  }
};

// One sequence, in the order of the scan: element t at [start + t * stride] of a, x and the direction's y.
// Pointers are put together where they are used: they stay in the kernel's parameters, not in registers.
struct Cursor {
  long long start, stride;
  EXPHIL_DEVICE long long at(long long t) const { return start + t * stride; }
};

EXPHIL_DEVICE Cursor cursor_at(const Arguments& p, int direction, long long column) {
  const long long outer = column / p.inner;
  const long long start = outer * p.length * p.inner + (column - outer * p.inner);
  if (direction == 0) return {start, p.inner};
  return {start + (p.length - 1) * p.inner, -p.inner};
}

template <Op O, Element E, bool Compensated>
struct Kit {
  using Store = Storage<E>;
  using Stored = typename Store::Stored;
  using Value = typename Store::Value;
  using Math = typename Select<O, Value, Compensated>::Type;
  using State = typename Math::State;
  using Summary = typename Math::Summary;
  using Builder = typename Math::Builder;
  static constexpr bool kHasDecay = O == Op::linear_recurrence;

  static EXPHIL_DEVICE Value x_at(const Arguments& p, const Cursor& cursor, long long t) {
    return Store::load(static_cast<const Stored*>(p.x) + cursor.at(t));
  }
  static EXPHIL_DEVICE Value a_at(const Arguments& p, const Cursor& cursor, long long t) {
    if constexpr (kHasDecay) return Store::load(static_cast<const Stored*>(p.a) + cursor.at(t));
    return Value();
  }
  static EXPHIL_DEVICE Stored* y_of(const Arguments& p, int direction) {
    return static_cast<Stored*>(direction == 1 ? p.y_reverse : p.y);
  }

  // The state at `to` by the sequential definition, from the state at `from`: for stretches whose summary
  // does not apply, which are rare.
  static EXPHIL_DEVICE void run(const Arguments& p, const Cursor& cursor, State* h, long long from,
                                long long to) {
    EXPHIL_UNROLL_NOT
    for (long long t = from; t < to; ++t) Math::step(*h, a_at(p, cursor, t), x_at(p, cursor, t));
  }

  static EXPHIL_DEVICE void advance(const Arguments& p, const Cursor& cursor, State* h,
                                    const Summary& summary, long long from, long long to) {
    if (!Math::apply(summary, *h)) run(p, cursor, h, from, to);
  }
};

// A struct of 32-bit words through a warp shuffle.
template <class T>
EXPHIL_DEVICE T lane_above(const T& value, int distance) {
  unsigned words[sizeof(T) / 4];
  memcpy(words, &value, sizeof(T));
  EXPHIL_UNROLL
  for (unsigned& word : words) word = lane_above(word, distance);
  T result;
  memcpy(&result, words, sizeof(T));
  return result;
}
template <class T>
EXPHIL_DEVICE T from_lane(const T& value, int lane) {
  unsigned words[sizeof(T) / 4];
  memcpy(words, &value, sizeof(T));
  EXPHIL_UNROLL
  for (unsigned& word : words) word = from_lane(word, lane);
  T result;
  memcpy(&result, words, sizeof(T));
  return result;
}

// Each lane's summary joined with those of all the lanes below it.
template <class Math>
EXPHIL_DEVICE typename Math::Summary joined_over_lanes(typename Math::Summary own, int lane) {
  EXPHIL_UNROLL
  for (int distance = 1; distance < 32; distance *= 2) {
    const typename Math::Summary below = lane_above(own, distance);
    if (lane >= distance) own = Math::compose(below, own);
  }
  return own;
}

// Where one chain keeps its hand-over.
template <class State, class Summary>
struct Chain {
  unsigned* tile_flags;    // {tiles}
  unsigned* window_flags;  // {windows}
  Summary* summaries;      // {tiles, lanes}
  State* carries;          // {windows, lanes}
};

template <class State, class Summary>
EXPHIL_DEVICE Chain<State, Summary> chain_at(const Arguments& p, long long chain, long long chains, int lanes,
                                             int window) {
  const long long windows = (p.tiles + window - 1) / window;
  return {p.flags + chain * p.tiles, p.flags + chains * p.tiles + chain * windows,
          static_cast<Summary*>(p.summaries) + chain * p.tiles * lanes,
          static_cast<State*>(p.carries) + chain * windows * lanes};
}

}  // namespace associative
}  // namespace exphil
