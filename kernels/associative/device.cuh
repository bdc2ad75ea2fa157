// Shared by the two associative-scan kernels: warp and memory primitives, the stored element types, a cursor
// over one sequence, and the hand-over between blocks. Included by associative/columns.cuh and
// associative/rows.cuh. With EXPHIL_EMULATED_GRID the includer supplies the primitives: the C++ tests run the
// kernels on the CPU with fibres.
#pragma once

#include "kernels/associative/arguments.cuh"
#include "kernels/associative/ops.cuh"
#include "kernels/associative/recurrence_gradient.cuh"

namespace exphil {
namespace associative {

#ifndef EXPHIL_EMULATED_GRID
#define EXPHIL_DEVICE __device__ __forceinline__
#define EXPHIL_UNROLL _Pragma("unroll")
#define EXPHIL_UNROLL_NOT _Pragma("unroll 1")

EXPHIL_DEVICE void sync_block() {
  __syncthreads();
}
// A barrier of the block that its `warps` warps reach at different places of the code. PTX allows that of
// barrier.sync, not of bar.sync: compute-sanitizer's synccheck rejects the second. (With bar.arrive on one
// side, racecheck reports hazards between accesses that the barrier orders.)
EXPHIL_DEVICE void sync_warps(unsigned warps) {
  asm volatile("barrier.sync 1, %0;" ::"r"(32 * warps) : "memory");
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

// Loads and stores of words that blocks exchange, bypassing the L1 cache, without ordering: each word shows
// by its value whether it has been written.
EXPHIL_DEVICE unsigned peek(const unsigned* word) {
  unsigned value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
EXPHIL_DEVICE void poke(unsigned* word, unsigned value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
EXPHIL_DEVICE void wait_more() {}

// Hides the origin of a value, so that the compiler recomputes addresses for the stores instead of keeping
// those of the loads in registers.
EXPHIL_DEVICE long long forget(long long value) {
  asm volatile("" : "+l"(value));
  return value;
}

// address + bytes. The compiler would multiply strides for every element in 64 bits; adding takes a third of
// the instructions.
EXPHIL_DEVICE long long stepped(long long address, long long bytes) {
  asm("add.s64 %0, %0, %1;" : "+l"(address) : "l"(bytes));
  return address;
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
  static EXPHIL_DEVICE Value value(Stored stored) { return stored; }
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
  static EXPHIL_DEVICE Value value(Stored stored) { return {stored.re, stored.im}; }
  static EXPHIL_DEVICE void store(Stored* to, Value value) { *to = {value.re, value.im}; }
};
template <>
struct Storage<Element::f16> {
  using Stored = unsigned short;
  using Value = float;
  static EXPHIL_DEVICE Value value(Stored stored) { return half_to_float(stored); }
  static EXPHIL_DEVICE void store(Stored* to, Value value) { *to = float_to_half(value); }
};
template <>
struct Storage<Element::bf16> {
  using Stored = unsigned short;
  using Value = float;
  static EXPHIL_DEVICE Value value(Stored stored) { return bits_float(static_cast<unsigned>(stored) << 16); }
  // To nearest even, in integers: sm_75 has no such conversion.
  static EXPHIL_DEVICE void store(Stored* to, Value value) {
    const unsigned bits = float_bits(value);
    const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    *to = static_cast<Stored>(value != value ? (bits >> 16) | 0x40u : rounded);
  }
};

// One sequence in scan order: element t at [start + t * stride] of a, x and the direction's y. Pointers are
// computed where they are used, so that they stay in the kernel's parameters, not in registers.
struct Cursor {
  long long start, stride;
  EXPHIL_DEVICE long long at(long long t) const { return start + t * stride; }
};

EXPHIL_DEVICE Cursor cursor_at(const Arguments& p, int direction, long long column) {
  // A 64-bit division costs a hundred instructions.
  const bool small = (p.columns >> 32) == 0;
  const long long outer =
      small ? static_cast<unsigned>(column) / static_cast<unsigned>(p.inner) : column / p.inner;
  const long long start = outer * p.length * p.inner + (column - outer * p.inner);
  if (direction == 0) return {start, p.inner};
  return {start + (p.length - 1) * p.inner, -p.inner};
}

// With Initial (linear recurrences), the state before the first step comes from Arguments::initial. With
// Gradient the scan is that of a linear recurrence's gradient, and its step t has the decay of the step
// before.
template <Op O, Element E, bool Compensated, bool Initial, bool Gradient>
struct Kit {
  using Store = Storage<E>;
  using Stored = typename Store::Stored;
  using Value = typename Store::Value;
  using Math = typename Select<O, Value, Compensated>::Type;
  using State = typename Math::State;
  using Summary = typename Math::Summary;
  using Builder = typename Math::Builder;
  static constexpr bool kHasDecay = O == Op::linear_recurrence;
  static constexpr bool kFloats = E != Element::s32 && E != Element::s64;

  static EXPHIL_DEVICE Value x_at(const Arguments& p, const Cursor& cursor, long long t) {
    return Store::value(static_cast<const Stored*>(p.x)[cursor.at(t)]);
  }
  static EXPHIL_DEVICE Value decay_of(Stored a) {
    if constexpr (Gradient) return conjugate(Store::value(a));
    return Store::value(a);
  }
  static EXPHIL_DEVICE Value a_at(const Arguments& p, const Cursor& cursor, long long t) {
    if constexpr (Gradient) {
      return t == 0 ? Value() : decay_of(static_cast<const Stored*>(p.a)[cursor.at(t - 1)]);
    } else if constexpr (kHasDecay) {
      return decay_of(static_cast<const Stored*>(p.a)[cursor.at(t)]);
    }
    return Value();
  }
  static EXPHIL_DEVICE State first_state(const Arguments& p, [[maybe_unused]] long long column) {
    if constexpr (Initial) return {Store::value(static_cast<const Stored*>(p.initial)[column])};
    return Math::initial();
  }
  static EXPHIL_DEVICE Stored* y_of(const Arguments& p, int direction) {
    return static_cast<Stored*>(direction == 1 ? p.y_reverse : p.y);
  }

  // Of the gradient's scan. What a step writes: y and da are its elements, and `before` is the recurrence's
  // state before it.
  static EXPHIL_DEVICE void store_gradients(Stored* y, Stored* da, Value db, Value before) {
    Store::store(y, from_zero(db));
    Store::store(da, decay_gradient(db, before));
  }
  // The same for the last step of the scan, which is the recurrence's first.
  static EXPHIL_DEVICE void store_last(const Arguments& p, const Cursor& cursor, long long column, Value db) {
    const long long at = cursor.at(p.length - 1);
    Value da{};
    if (p.initial != nullptr) {
      da = decay_gradient(db, Store::value(static_cast<const Stored*>(p.initial)[column]));
    }
    Store::store(static_cast<Stored*>(p.da) + at, da);
    if (p.d_initial == nullptr) return;
    const Value a = Store::value(static_cast<const Stored*>(p.a)[at]);
    Store::store(static_cast<Stored*>(p.d_initial) + column, formulas::times_conjugate(db, a));
  }

  // The state at `to` from the state at `from`: by the summary of the steps between, or where that does not
  // apply (rarely) by the sequential definition.
  static EXPHIL_DEVICE State advance(const Arguments& p, int direction, long long column, State h,
                                     const Summary& summary, long long from, long long to) {
    State after = h;
    if (Math::apply(summary, after)) return after;
    const Cursor cursor = cursor_at(p, direction, column);
    EXPHIL_UNROLL_NOT
    for (long long t = from; t < to; ++t) Math::step(h, a_at(p, cursor, t), x_at(p, cursor, t));
    return h;
  }
};

// Shuffles a struct of 32-bit words.
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

// Each lane's summary combined with those of all lower
// lanes, among the first `lanes` lanes (a power of two).
template <class Math>
EXPHIL_DEVICE typename Math::Summary joined_over_lanes(typename Math::Summary own, int lane, int lanes = 32) {
  EXPHIL_UNROLL
  for (int distance = 1; distance < 32; distance *= 2) {
    if (distance >= lanes) break;
    const typename Math::Summary below = lane_above(own, distance);
    if (lane >= distance) own = Math::compose(below, own);
  }
  return own;
}

}  // namespace associative
}  // namespace exphil
