// The associative operations, once: one sequential step of each, and how whole stretches of time are
// summarised, joined and applied. Compiled by the host compiler and by NVRTC, so it includes nothing but the
// complex type of formulas.cuh.
//
// An operation is a class with
//   State               what the sequential loop carries; initial(), step(state, a, x), value(state)
//   Builder             a Summary in the making: push(a, x) for each element in time's order, finish()
//   Summary             what a stretch does to the state before it; identity(), compose(earlier, later)
//   apply(summary, &state) -> bool
// x is the element (b of the linear recurrence) and `a` its decay, ignored by every other operation.
//
// Composing stretches reorders arithmetic, and a product of decays may overflow, or vanish, where the
// sequential loop does not (0 * infinity would then be a NaN that the definition never makes). Each float
// Summary therefore carries `limit`: for |state| <= limit, no intermediate of the sequential loop or of the
// composition leaves f32's range, so apply() equals the loop but for rounding. Beyond the limit apply()
// returns false and the caller runs the stretch step by step. -1 means never.
#pragma once

#include "formulas.cuh"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define EXPHIL_FABS fabsf
#define EXPHIL_INFINITY __int_as_float(0x7f800000)
#else
#define EXPHIL_FABS __builtin_fabsf
#define EXPHIL_INFINITY __builtin_huge_valf()
#endif

namespace exphil {
namespace associative {

using formulas::Complex;

// The numbers are part of the kernels' -D interface: append only.
enum class Op : int { cumsum = 0, cumprod = 1, cummax = 2, cummin = 3, linear_recurrence = 4 };

constexpr float kRoom = 0x1p126f;  // intermediates below this are far from overflow
constexpr float kSmallestNormal = 0x1p-126f;
// A product of decays below the smallest normal number has lost bits, or is 0: what it should have kept of a
// state of this size is below 2^-62 and is given up; a larger state is run step by step.
constexpr float kVanishingLimit = 0x1p64f;

EXPHIL_FN float bound(float v) {
  return EXPHIL_FABS(v);
}
EXPHIL_FN float bound(Complex<float> v) {
  return EXPHIL_FABS(v.re) + EXPHIL_FABS(v.im);
}

EXPHIL_FN bool is_nan(float v) {
  return v != v;
}
EXPHIL_FN bool is_nan(Complex<float> v) {
  return v.re != v.re && v.im != v.im;
}  // both: a NaN that stays

// Keeps a NaN, unlike fmaxf: a peak that is NaN or infinite makes the stretch one that is run step by step.
EXPHIL_FN float larger(float peak, float v) {
  return v <= peak ? peak : v;
}
EXPHIL_FN float smaller(float left, float right) {
  return left < right ? left : right;
}

template <class V>
struct Zero {
  static EXPHIL_FN V value() { return V(0); }
};
template <class T>
struct Zero<Complex<T>> {
  static EXPHIL_FN Complex<T> value() { return {T(0), T(0)}; }
};

// -0 is the sum's exact neutral element: -0 + x is x, also for x = -0.
template <class V>
struct SumStart {
  static EXPHIL_FN V value() { return V(0); }
};
template <>
struct SumStart<float> {
  static EXPHIL_FN float value() { return -0.0f; }
};
template <>
struct SumStart<Complex<float>> {
  static EXPHIL_FN Complex<float> value() { return {-0.0f, -0.0f}; }
};

template <class V>
struct Lowest;
template <>
struct Lowest<float> {
  static EXPHIL_FN float low() { return -EXPHIL_INFINITY; }
  static EXPHIL_FN float high() { return EXPHIL_INFINITY; }
};
template <>
struct Lowest<int> {
  static EXPHIL_FN int low() { return -2147483647 - 1; }
  static EXPHIL_FN int high() { return 2147483647; }
};
template <>
struct Lowest<long long> {
  static EXPHIL_FN long long low() { return -9223372036854775807LL - 1; }
  static EXPHIL_FN long long high() { return 9223372036854775807LL; }
};

// cummax and cummin. The first NaN stays: what comes after it is not compared any more. Of equal values
// (-0 and 0) the earlier stays.
template <class V, bool Max>
struct Extremum {
  struct State {
    V h;
  };
  using Summary = State;
  struct Builder {
    V h = start();
    EXPHIL_FN void push(V, V x) { h = better(h, x); }
    EXPHIL_FN Summary finish() const { return {h}; }
  };
  static EXPHIL_FN V start() { return Max ? Lowest<V>::low() : Lowest<V>::high(); }
  static EXPHIL_FN V better(V h, V x) {
    const bool keep = (Max ? h >= x : h <= x) || h != h;
    return keep ? h : x;
  }
  static EXPHIL_FN State initial() { return {start()}; }
  static EXPHIL_FN void step(State& state, V, V x) { state.h = better(state.h, x); }
  static EXPHIL_FN V value(const State& state) { return state.h; }
  static EXPHIL_FN Summary identity() { return {start()}; }
  static EXPHIL_FN Summary compose(const Summary& earlier, const Summary& later) {
    return {better(earlier.h, later.h)};
  }
  static EXPHIL_FN bool apply(const Summary& summary, State& state) {
    state.h = better(state.h, summary.h);
    return true;
  }
};

// Sums of integers wrap around, as in Nx. Added as unsigned numbers: signed overflow is undefined in C++.
template <class V, class U>
struct IntegerSum {
  struct State {
    V h;
  };
  using Summary = State;
  struct Builder {
    V h = 0;
    EXPHIL_FN void push(V, V x) { h = add(h, x); }
    EXPHIL_FN Summary finish() const { return {h}; }
  };
  static EXPHIL_FN V add(V left, V right) {
    return static_cast<V>(static_cast<U>(left) + static_cast<U>(right));
  }
  static EXPHIL_FN State initial() { return {0}; }
  static EXPHIL_FN void step(State& state, V, V x) { state.h = add(state.h, x); }
  static EXPHIL_FN V value(const State& state) { return state.h; }
  static EXPHIL_FN Summary identity() { return {0}; }
  static EXPHIL_FN Summary compose(const Summary& earlier, const Summary& later) {
    return {add(earlier.h, later.h)};
  }
  static EXPHIL_FN bool apply(const Summary& summary, State& state) {
    state.h = add(state.h, summary.h);
    return true;
  }
};

// An infinite real sum stays as it is through a stretch of finite elements, which a limit of 0 or more
// promises.
EXPHIL_FN bool stays_infinite(float h, float limit) {
  return EXPHIL_FABS(h) > 0x1.fffffep127f && limit >= 0.0f;
}
EXPHIL_FN bool stays_infinite(Complex<float>, float) {
  return false;
}

// The part of sums that keeps to the sequential loop's range. `peak`: the largest partial sum.
EXPHIL_FN float sum_limit(float peak) {
  return peak <= kRoom ? kRoom - peak : -1.0f;
}
EXPHIL_FN float joined_sum_limit(float earlier, float earlier_sum, float later) {
  const float rest = later - earlier_sum;
  return rest >= 0.0f ? smaller(rest, earlier) : -1.0f;
}

// cumsum in f32 and c64.
template <class V>
struct Sum {
  struct State {
    V h;
  };
  struct Summary {
    V sum;
    float limit;
  };
  struct Builder {
    V sum = SumStart<V>::value();
    float peak = 0.0f;
    EXPHIL_FN void push(V, V x) {
      sum = sum + x;
      peak = larger(peak, bound(sum));
    }
    EXPHIL_FN Summary finish() const { return {sum, sum_limit(peak)}; }
  };
  static EXPHIL_FN State initial() { return {SumStart<V>::value()}; }
  static EXPHIL_FN void step(State& state, V, V x) { state.h = state.h + x; }
  static EXPHIL_FN V value(const State& state) { return state.h; }
  static EXPHIL_FN Summary identity() { return {SumStart<V>::value(), kRoom}; }
  static EXPHIL_FN Summary compose(const Summary& earlier, const Summary& later) {
    return {earlier.sum + later.sum, joined_sum_limit(earlier.limit, bound(earlier.sum), later.limit)};
  }
  static EXPHIL_FN bool apply(const Summary& summary, State& state) {
    if (is_nan(state.h)) return true;
    if (!(bound(state.h) <= summary.limit)) return stays_infinite(state.h, summary.limit);
    state.h = state.h + summary.sum;
    return true;
  }
};

// left + right exactly, as a rounded sum and its error (Knuth's two-sum, no branch).
template <class V>
EXPHIL_FN void two_sum(V left, V right, V* sum, V* error) {
  const V total = left + right;
  const V part = total - left;
  *error = (left - (total - part)) + (right - part);
  *sum = total;
}

// An infinite or NaN sum has no meaningful error.
EXPHIL_FN float error_of(float sum, float error) {
  return EXPHIL_FABS(sum) <= 0x1.fffffep127f ? error : 0.0f;
}
EXPHIL_FN Complex<float> error_of(Complex<float> sum, Complex<float> error) {
  return {error_of(sum.re, error.re), error_of(sum.im, error.im)};
}

// cumsum with compensation: the sum's rounding error is kept beside it (Neumaier), and both are carried from
// stretch to stretch. What the error has grown to goes into the sum at every step: left to itself, its own
// rounding errors reach several units of the sum within 100,000 equal elements.
template <class V>
struct CompensatedSum {
  struct State {
    V h, error;
  };
  struct Summary {
    V sum, error;
    float limit;
  };
  struct Builder {
    V sum = SumStart<V>::value(), error = SumStart<V>::value();
    float peak = 0.0f;
    EXPHIL_FN void push(V, V x) {
      add(&sum, &error, x, SumStart<V>::value());
      peak = larger(peak, bound(sum));
    }
    EXPHIL_FN Summary finish() const { return {sum, error, sum_limit(peak)}; }
  };
  static EXPHIL_FN void add(V* sum, V* error, V x, V x_error) {
    V total, lost;
    two_sum(*sum, x, &total, &lost);
    lost = error_of(total, lost + (*error + x_error));
    *sum = total + lost;
    *error = lost - (*sum - total);
  }
  static EXPHIL_FN State initial() { return {SumStart<V>::value(), SumStart<V>::value()}; }
  static EXPHIL_FN void step(State& state, V, V x) { add(&state.h, &state.error, x, SumStart<V>::value()); }
  static EXPHIL_FN V value(const State& state) { return state.h; }
  static EXPHIL_FN Summary identity() { return {SumStart<V>::value(), SumStart<V>::value(), kRoom}; }
  static EXPHIL_FN Summary compose(const Summary& earlier, const Summary& later) {
    Summary joined = earlier;
    add(&joined.sum, &joined.error, later.sum, later.error);
    joined.limit = joined_sum_limit(earlier.limit, bound(earlier.sum), later.limit);
    return joined;
  }
  static EXPHIL_FN bool apply(const Summary& summary, State& state) {
    if (is_nan(state.h)) return true;
    if (!(bound(state.h) <= summary.limit)) return stays_infinite(state.h, summary.limit);
    add(&state.h, &state.error, summary.sum, summary.error);
    return true;
  }
};

// For every |state| <= the result: |decay state + input| stays within kRoom, for the largest decay and input
// of any prefix of the stretch; `total` is the decay of the whole stretch.
EXPHIL_FN float recurrence_limit(float largest_decay, float largest_input, float total) {
  if (!(largest_decay <= kRoom) || !(largest_input <= kRoom)) return -1.0f;
  const float limit = (kRoom - largest_input) / larger(1.0f, largest_decay);
  return total < kSmallestNormal ? smaller(limit, kVanishingLimit) : limit;
}

// The limit of two stretches, given what the earlier does (decay, input), and what both do.
EXPHIL_FN float joined_recurrence_limit(float earlier, float earlier_decay, float earlier_input, float later,
                                        float joined_decay, float joined_input) {
  const float rest = later - earlier_input;
  if (!(rest >= 0.0f) || !(joined_decay <= kRoom) || !(joined_input <= kRoom)) return -1.0f;
  const float limit = smaller(rest / larger(0x1p-100f, earlier_decay), earlier);
  return joined_decay < kSmallestNormal ? smaller(limit, kVanishingLimit) : limit;
}

// An infinite real state stays infinite through finite inputs and finite decays, none of which is 0 as long
// as their product is not. A complex one mixes infinities into NaN, so its stretch is run step by step.
EXPHIL_FN bool apply_to_infinite(float decay, float limit, float* h) {
  if (!(limit >= 0.0f) || decay == 0.0f || !(EXPHIL_FABS(*h) > 0x1.fffffep127f)) return false;
  *h = decay * *h;
  return true;
}
EXPHIL_FN bool apply_to_infinite(Complex<float>, float, Complex<float>*) {
  return false;
}

// h_t = a_t h_(t-1) + x_t from h = 0, in f32 and c64.
template <class V>
struct LinearRecurrence {
  struct State {
    V h;
  };
  struct Summary {
    V decay, input;
    float limit;
  };
  struct Builder {
    V decay = one(), input = Zero<V>::value();
    float largest_decay = 0.0f, largest_input = 0.0f;
    EXPHIL_FN void push(V a, V x) {
      decay = a * decay;
      input = a * input + x;
      largest_decay = larger(largest_decay, bound(decay));
      largest_input = larger(largest_input, bound(input));
    }
    EXPHIL_FN Summary finish() const {
      return {decay, input, recurrence_limit(largest_decay, largest_input, bound(decay))};
    }
  };
  static EXPHIL_FN void set_one(float& v) { v = 1.0f; }
  static EXPHIL_FN void set_one(Complex<float>& v) { v = {1.0f, 0.0f}; }
  static EXPHIL_FN V one() {
    V v;
    set_one(v);
    return v;
  }
  static EXPHIL_FN State initial() { return {Zero<V>::value()}; }
  static EXPHIL_FN void step(State& state, V a, V x) { state.h = a * state.h + x; }
  static EXPHIL_FN V value(const State& state) { return state.h; }
  static EXPHIL_FN Summary identity() { return {one(), Zero<V>::value(), kRoom}; }
  static EXPHIL_FN Summary compose(const Summary& earlier, const Summary& later) {
    Summary joined;
    joined.decay = later.decay * earlier.decay;
    joined.input = later.decay * earlier.input + later.input;
    joined.limit = joined_recurrence_limit(earlier.limit, bound(earlier.decay), bound(earlier.input),
                                           later.limit, bound(joined.decay), bound(joined.input));
    return joined;
  }
  static EXPHIL_FN bool apply(const Summary& summary, State& state) {
    if (is_nan(state.h)) return true;
    if (!(bound(state.h) <= summary.limit)) return apply_to_infinite(summary.decay, summary.limit, &state.h);
    state.h = summary.decay * state.h + summary.input;
    return true;
  }
};

// cumprod in f32: the recurrence h_t = x_t h_(t-1) from h = 1.
template <class V>
struct Product {
  struct State {
    V h;
  };
  struct Summary {
    V product;
    float limit;
  };
  struct Builder {
    V product = V(1);
    float peak = 0.0f;
    EXPHIL_FN void push(V, V x) {
      product = x * product;
      peak = larger(peak, bound(product));
    }
    EXPHIL_FN Summary finish() const { return {product, recurrence_limit(peak, 0.0f, bound(product))}; }
  };
  static EXPHIL_FN State initial() { return {V(1)}; }
  static EXPHIL_FN void step(State& state, V, V x) { state.h = x * state.h; }
  static EXPHIL_FN V value(const State& state) { return state.h; }
  static EXPHIL_FN Summary identity() { return {V(1), kRoom}; }
  static EXPHIL_FN Summary compose(const Summary& earlier, const Summary& later) {
    const V product = later.product * earlier.product;
    return {product, joined_recurrence_limit(earlier.limit, bound(earlier.product), 0.0f, later.limit,
                                             bound(product), 0.0f)};
  }
  static EXPHIL_FN bool apply(const Summary& summary, State& state) {
    if (is_nan(state.h)) return true;
    if (!(bound(state.h) <= summary.limit))
      return apply_to_infinite(summary.product, summary.limit, &state.h);
    state.h = summary.product * state.h;
    return true;
  }
};

// The class for an operation on accumulators of type V (float, int, long long, Complex<float>).
template <Op O, class V, bool Compensated>
struct Select;
template <class V>
struct Select<Op::cumsum, V, false> {
  using Type = Sum<V>;
};
template <class V>
struct Select<Op::cumsum, V, true> {
  using Type = CompensatedSum<V>;
};
template <>
struct Select<Op::cumsum, int, false> {
  using Type = IntegerSum<int, unsigned>;
};
template <>
struct Select<Op::cumsum, long long, false> {
  using Type = IntegerSum<long long, unsigned long long>;
};
template <class V>
struct Select<Op::cumprod, V, false> {
  using Type = Product<V>;
};
template <class V>
struct Select<Op::cummax, V, false> {
  using Type = Extremum<V, true>;
};
template <class V>
struct Select<Op::cummin, V, false> {
  using Type = Extremum<V, false>;
};
template <class V>
struct Select<Op::linear_recurrence, V, false> {
  using Type = LinearRecurrence<V>;
};

}  // namespace associative
}  // namespace exphil
