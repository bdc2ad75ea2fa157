#include "host/policy/head_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/policy/head_kernels.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include <algorithm>
#include <cmath>
#include "core/policy/cells.hpp"
#include "core/scalar_math.hpp"
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// Frames whose states the gradient keeps at once. It computes them again from the state before the first.
inline constexpr std::int64_t kKeptFrames = 32;

// A group's key or query of one frame in whole panels, with zeros at the end.
class KeyVector {
 public:
  KeyVector(const float* values, std::int64_t keys) : values_(values), whole_(keys / kPanel * kPanel) {
    for (std::int64_t i = whole_; i < keys; ++i) tail_[i - whole_] = values[i];
  }
  HWY_INLINE F at(std::int64_t i) const { return load(i < whole_ ? values_ + i : tail_ + (i - whole_)); }

 private:
  const float* values_;
  const std::int64_t whole_;
  HWY_ALIGN float tail_[kPanel] = {};
};

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE float sum_in_halves(Lanes /*lanes*/, F v) {
  return hn::GetLane(v);
}
#else
template <class D>
HWY_INLINE float sum_in_halves(D /*lanes*/, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return sum_in_halves(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// A sum over a row: one for each lane of a panel, then added in halves, the same on every target.
class LaneSums {
 public:
  LaneSums() {
    for (std::int64_t v = 0; v < kVectors; ++v) sums_[v] = fill(0.0);
  }
  HWY_INLINE void add(std::int64_t vector, F p, F q) { sums_[vector] = hn::MulAdd(p, q, sums_[vector]); }
  float total() {
    for (std::int64_t half = kVectors / 2; half > 0; half /= 2) {
      for (std::int64_t v = 0; v < half; ++v) sums_[v] = sums_[v] + sums_[v + half];
    }
    return sum_in_halves(Lanes(), sums_[0]);
  }

 private:
  F sums_[kVectors];
};

// body(i, v) for vector v of each panel of a row, whose values begin at i.
template <class Body>
HWY_INLINE void each_vector(std::int64_t keys, const Body& body) {
  for (std::int64_t i = 0; i < keys; i += kPanel) {
    for (std::int64_t v = 0; v < kVectors; ++v) body(i + v * kLanes, v);
  }
}

// What the rows of a head share in frame t.
struct HeadFrame {
  HeadFrame(const HeadRows& h, std::int64_t head, std::int64_t t)
      : key(h.key.data + t * h.key.step + head / h.heads_of_group * h.keys, h.keys),
        query(h.query.data + t * h.query.step + head / h.heads_of_group * h.keys, h.keys),
        given(h.decay.data[t * h.decay.step + head]),
        decay(h.a == nullptr ? given : std::exp(h.a[head] * given)) {}
  const KeyVector key, query;
  const float given, decay;
};
inline float rate_of(const HeadRows& h, std::int64_t head, std::int64_t row, std::int64_t t) {
  return h.rate.data[t * h.rate.step + (h.rate_of_head ? head : row)];
}
inline float value_of(const HeadRows& h, std::int64_t row, std::int64_t t) {
  return h.value.data[t * h.value.step + row];
}
inline float skip_of(const HeadRows& h, std::int64_t head, std::int64_t row) {
  return h.d == nullptr ? 0.0f : h.d[h.skip_of_head ? head : row];
}

HWY_INLINE float recall(const HeadRows& h, const float* state, const KeyVector& key) {
  LaneSums sums;
  each_vector(h.keys, [&](std::int64_t i, std::int64_t v) { sums.add(v, load(state + i), key.at(i)); });
  return sums.total();
}

// One row of a frame: its state from `from` to `to`. Returns <S', query> where it is wanted.
template <formulas::HeadRule kRule, bool kAnswers>
HWY_INLINE float advance_row(const HeadRows& h, const HeadFrame& f, float rate, float value,
                             const float* from, float* to) {
  const float recalled = kRule == formulas::HeadRule::delta ? recall(h, from, f.key) : 0.0f;
  const float input = formulas::head_input<kRule>(rate, value, f.decay, recalled);
  const F inputs = broadcast(&input), decays = broadcast(&f.decay);
  LaneSums sums;
  each_vector(h.keys, [&](std::int64_t i, std::int64_t v) {
    const F state = formulas::advance_head(load(from + i), decays, inputs, f.key.at(i));
    store(state, to + i);
    if constexpr (kAnswers) sums.add(v, state, f.query.at(i));
  });
  return kAnswers ? sums.total() : 0.0f;
}

template <formulas::HeadRule kRule>
void advance_heads_of(const HeadRows& h, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = padded(h.keys);
  for (std::int64_t t = 0; t < h.seq; ++t) {
    const float* const from = t == 0 ? h.from : h.states;
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t head = row / h.channels, last = std::min(end, (head + 1) * h.channels);
      const HeadFrame f(h, head, t);
      for (; row < last; ++row) {
        const float rate = rate_of(h, head, row, t), value = value_of(h, row, t);
        const float* const before = from + (row - begin) * width;
        float* const after = h.states + (row - begin) * width;
        if (t < h.unanswered) {
          advance_row<kRule, false>(h, f, rate, value, before, after);
        } else {
          h.out.data[t * h.out.step + row] =
              advance_row<kRule, true>(h, f, rate, value, before, after) + skip_of(h, head, row) * value;
        }
      }
    }
  }
}

void run_advance_heads(const HeadRows& h, std::int64_t begin, std::int64_t end) {
  core::with_rule(h.rule, [&](auto rule) { advance_heads_of<rule()>(h, begin, end); });
}

// ---- the gradient ----

// Back through one frame of a head. states: before the frame; d: of the states after it, receives that before
// it.
template <formulas::HeadRule kRule>
void frame_back(const HeadRows& h, const HeadGradient& g, std::int64_t head, std::int64_t t,
                const float* states, float* d) {
  const std::int64_t width = padded(h.keys), first = head * h.channels;
  const HeadFrame f(h, head, t);
  const F decays = broadcast(&f.decay);
  float *const d_key = g.d_key + t * width, *const d_query = g.d_query + t * width;
  std::fill_n(d_key, width, 0.0f), std::fill_n(d_query, width, 0.0f);
  float d_decay = 0, d_rate = 0, d_skip = 0;
  for (std::int64_t row = first; row < first + h.channels; ++row, states += width, d += width) {
    const float rate = rate_of(h, head, row, t), value = value_of(h, row, t);
    const float dy = g.d_out.data[t * g.d_out.step + row];
    const float recalled = kRule == formulas::HeadRule::delta ? recall(h, states, f.key) : 0.0f;
    const float input = formulas::head_input<kRule>(rate, value, f.decay, recalled);
    const F dys = broadcast(&dy), inputs = broadcast(&input);
    LaneSums by_key, by_state;
    each_vector(h.keys, [&](std::int64_t i, std::int64_t v) {
      const F state = load(states + i), key = f.key.at(i);
      const F after = formulas::advance_head(state, decays, inputs, key);
      const F d_after = hn::MulAdd(dys, f.query.at(i), load(d + i));
      store(hn::MulAdd(dys, after, load(d_query + i)), d_query + i);
      store(d_after, d + i);
      by_key.add(v, d_after, key);
      by_state.add(v, d_after, state);
    });
    const auto back = formulas::head_input_gradient<kRule, core::ScalarMath<float>>(rate, value, f.decay,
                                                                                    recalled, by_key.total());
    const F d_recalled = broadcast(&back.recalled);
    each_vector(h.keys, [&](std::int64_t i, std::int64_t) {
      const F d_after = load(d + i);
      const F more = hn::MulAdd(d_after, inputs, d_recalled * load(states + i));
      store(load(d_key + i) + more, d_key + i);
      store(hn::MulAdd(d_after, decays, d_recalled * f.key.at(i)), d + i);
    });
    d_decay += by_state.total() + back.decay;
    d_rate += back.rate, d_skip += dy * value;
    if (!h.rate_of_head) g.d_rate.data[t * g.d_rate.step + row] = back.rate;
    g.d_value.data[t * g.d_value.step + row] = back.value + dy * skip_of(h, head, row);
    if (g.d_d != nullptr && !h.skip_of_head) g.d_d[row] += dy * value;
  }
  if (h.rate_of_head) g.d_rate.data[t * g.d_rate.step + head] = d_rate;
  if (g.d_d != nullptr && h.skip_of_head) g.d_d[head] += d_skip;
  if (g.d_a != nullptr) g.d_a[head] += d_decay * f.decay * f.given;
  g.d_decay.data[t * g.d_decay.step + head] = h.a == nullptr ? d_decay : d_decay * f.decay * h.a[head];
}

// The state before each frame of [first, end) of a head, one after another, from that before the first.
template <formulas::HeadRule kRule>
void keep_states(const HeadRows& h, std::int64_t head, std::int64_t first, std::int64_t end, float* states) {
  const std::int64_t width = padded(h.keys), floats = h.channels * width;
  for (std::int64_t t = first; t + 1 < end; ++t, states += floats) {
    const HeadFrame f(h, head, t);
    for (std::int64_t c = 0; c < h.channels; ++c) {
      const std::int64_t row = head * h.channels + c;
      advance_row<kRule, false>(h, f, rate_of(h, head, row, t), value_of(h, row, t), states + c * width,
                                states + floats + c * width);
    }
  }
}

// scratch: the state before every kKeptFrames-th frame; the states before each frame of such a part, and one
// more; the gradient of the state.
template <formulas::HeadRule kRule>
void heads_back_of(const HeadRows& h, const HeadGradient& g, std::int64_t head, float* scratch) {
  const std::int64_t width = padded(h.keys), floats = h.channels * width;
  const std::int64_t parts = (h.seq + kKeptFrames - 1) / kKeptFrames;
  float *const kept = scratch + parts * floats, *const d = kept + (kKeptFrames + 1) * floats;
  std::fill_n(scratch, floats, 0.0f), std::fill_n(d, floats, 0.0f);
  for (std::int64_t c = 0; g.initial != nullptr && c < h.channels; ++c) {
    std::copy_n(g.initial + c * h.keys, h.keys, scratch + c * width);
  }
  for (std::int64_t part = 0; part + 1 < parts; ++part) {
    std::copy_n(scratch + part * floats, floats, kept);
    keep_states<kRule>(h, head, part * kKeptFrames, (part + 1) * kKeptFrames + 1, kept);
    std::copy_n(kept + kKeptFrames * floats, floats, scratch + (part + 1) * floats);
  }
  for (std::int64_t part = parts; part-- > 0;) {
    const std::int64_t first = part * kKeptFrames, end = std::min(h.seq, first + kKeptFrames);
    std::copy_n(scratch + part * floats, floats, kept);
    keep_states<kRule>(h, head, first, end, kept);
    for (std::int64_t t = end; t-- > first;) frame_back<kRule>(h, g, head, t, kept + (t - first) * floats, d);
  }
}

void run_heads_back(const HeadRows& h, const HeadGradient& g, std::int64_t head, float* scratch) {
  core::with_rule(h.rule, [&](auto rule) { heads_back_of<rule()>(h, g, head, scratch); });
}

std::int64_t run_scratch_floats(const HeadRows& h) {
  const std::int64_t parts = (h.seq + kKeptFrames - 1) / kKeptFrames;
  return (parts + kKeptFrames + 2) * h.channels * padded(h.keys);
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_advance_heads);
HWY_EXPORT(run_heads_back);
HWY_EXPORT(run_scratch_floats);

void advance_heads(const HeadRows& heads, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_advance_heads)(heads, begin, end);
}

void heads_back(const HeadRows& heads, const HeadGradient& gradient, std::int64_t head, float* scratch) {
  HWY_DYNAMIC_DISPATCH(run_heads_back)(heads, gradient, head, scratch);
}

std::int64_t head_gradient_scratch_floats(const HeadRows& heads) {
  return HWY_DYNAMIC_DISPATCH(run_scratch_floats)(heads);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
