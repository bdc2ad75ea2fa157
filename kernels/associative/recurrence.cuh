// linear_recurrence and cumprod as operations of associative/ops.cuh.
#pragma once

#include "kernels/associative/numbers.cuh"

namespace exphil {
namespace associative {

// For every |state| <= the result, |decay state + input| stays within kRoom, for the largest decay and input
// of any prefix of the segment; `total` is the decay of the entire segment.
EXPHIL_FN float recurrence_limit(float largest_decay, float largest_input, float total) {
  if (!(largest_decay <= kRoom) || !(largest_input <= kRoom)) return -1.0f;
  const float limit = quotient_below(kRoom - largest_input, larger(1.0f, largest_decay));
  return total < kSmallestNormal ? smaller(limit, kVanishingLimit) : limit;
}

// The limit of two consecutive segments, given the effect of the earlier one (decay, input) and of both.
EXPHIL_FN float joined_recurrence_limit(float earlier, float earlier_decay, float earlier_input, float later,
                                        float joined_decay, float joined_input) {
  const float rest = later - earlier_input;
  if (!(rest >= 0.0f) || !(joined_decay <= kRoom) || !(joined_input <= kRoom)) return -1.0f;
  const float limit = smaller(quotient_below(rest, larger(0x1p-100f, earlier_decay)), earlier);
  return joined_decay < kSmallestNormal ? smaller(limit, kVanishingLimit) : limit;
}

// An infinite real state stays infinite through finite inputs and finite decays; none of these is 0 if their
// product is not. A complex state mixes infinities into NaN, so its segment is processed step by step.
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

}  // namespace associative
}  // namespace exphil
