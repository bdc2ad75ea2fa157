// cumsum, plain and compensated, and cummax and cummin, as operations of associative/ops.cuh.
#pragma once

#include "kernels/associative/numbers.cuh"

namespace exphil {
namespace associative {

// cummax and cummin. The first NaN is kept, without further comparisons. Of equal values (-0 and 0) the
// earlier is kept.
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

// Whether an infinite real sum stays unchanged by a segment: its elements are finite if the limit is at least
// 0.
EXPHIL_FN bool stays_infinite(float h, float limit) {
  return EXPHIL_FABS(h) > 0x1.fffffep127f && limit >= 0.0f;
}
EXPHIL_FN bool stays_infinite(Complex<float>, float) {
  return false;
}

// The limit of sums within the sequential loop's range. `peak`: the largest partial sum.
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
EXPHIL_FN float error_beside(float sum, float error) {
  return EXPHIL_FABS(sum) <= 0x1.fffffep127f ? error : 0.0f;
}
EXPHIL_FN Complex<float> error_beside(Complex<float> sum, Complex<float> error) {
  return {error_beside(sum.re, error.re), error_beside(sum.im, error.im)};
}

// cumsum with compensation: the sum's rounding error is kept separately (Neumaier), and both are carried
// between segments. At every step the accumulated error is added into the sum; otherwise the error's own
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
    lost = error_beside(total, lost + (*error + x_error));
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

}  // namespace associative
}  // namespace exphil
