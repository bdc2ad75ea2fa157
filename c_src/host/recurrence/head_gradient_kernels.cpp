#include "host/recurrence/head_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/recurrence/head_gradient_kernels.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include <algorithm>
#include "core/scalar_math.hpp"
#include "core/work/background.hpp"
#include "host/recurrence/head_kernels-inl.hpp"
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// Frames whose states the gradient keeps at once. It computes them again from the state before the first.
inline constexpr std::int64_t kKeptFrames = 32;

// The gradient of one row of the trapezoidal rule through its ranks.
template <int kRanks>
class TrapezoidRow {
 public:
  using Frame = HeadFrame<formulas::HeadRule::trapezoid, kRanks>;
  TrapezoidRow(const HeadRows& h, const HeadGradient& g, const Frame& f, const HeadValue& r, std::int64_t t)
      : h_(h), g_(g), f_(f), r_(r), t_(t), width_(padded(h.keys)), inputs_(h, f, r, t) {}

  float d_decay = 0, d_rate = 0, d_rate_before = 0, d_skip = 0;

  // states: before the frame; d: of the states after it, receives that before it.
  void back(const float* states, float* d) {
    outputs_back(states, d);
    const float skip = skip_of(h_, r_.head, r_.row), value_before = inputs_.value_before;
    float d_value = 0, d_before = 0;
    for (std::int64_t rank = 0; rank < ranks(); ++rank) {
      const auto [now, before] = inputs_back(rank, d);
      const float scale = scale_of(h_, r_.head, r_.row, rank), dy = d_out(rank);
      const float d_scaled = now * r_.rate + dy * skip, d_scaled_before = before * f_.rate_before;
      d_rate += now * (scale * r_.value), d_rate_before += before * (scale * value_before);
      d_skip += dy * (scale * r_.value);
      d_value += d_scaled * scale, d_before += d_scaled_before * scale;
      if (g_.d_scale == nullptr) continue;
      g_.d_scale[scale_at(h_, r_.head, r_.row) + rank * h_.channels] +=
          d_scaled * r_.value + d_scaled_before * value_before;
    }
    const F decays = broadcast(&f_.decay);
    each_vector(h_.keys, [&](std::int64_t i, std::int64_t) { store(load(d + i) * decays, d + i); });
    g_.d_value.data[t_ * g_.d_value.step + r_.row] = d_value;
    g_.d_value_before.data[t_ * g_.d_value_before.step + r_.row] = d_before;
    if (g_.d_d != nullptr && !h_.skip_of_head) g_.d_d[r_.row] += d_skip;
  }

 private:
  struct InputGradient {
    float now, before;
  };
  std::int64_t ranks() const { return ranks_of<kRanks>(h_); }
  float d_out(std::int64_t rank) const {
    return g_.d_out.data[t_ * g_.d_out.step + rank * h_.values + r_.row];
  }
  float* in_rank(float* all, std::int64_t rank) const { return all + (t_ * ranks() + rank) * width_; }
  static HWY_INLINE void add(F p, F q, float* to) { store(hn::MulAdd(p, q, load(to)), to); }

  void outputs_back(const float* states, float* d) {
    const F decays = broadcast(&f_.decay);
    LaneSums by_state;
    each_vector(h_.keys, [&](std::int64_t i, std::int64_t v) {
      const F state = load(states + i), after = advance_vector<kRanks>(h_, f_, inputs_, decays, state, i);
      F d_after = load(d + i);
      for (std::int64_t rank = 0; rank < ranks(); ++rank) {
        const float dy = d_out(rank);
        d_after = hn::MulAdd(broadcast(&dy), f_.query[rank].at(i), d_after);
        add(broadcast(&dy), after, in_rank(g_.d_query, rank) + i);
      }
      store(d_after, d + i);
      by_state.add(v, d_after, state);
    });
    d_decay = by_state.total();
  }

  InputGradient inputs_back(std::int64_t rank, const float* d) {
    LaneSums by_key, by_before;
    float *const d_key = in_rank(g_.d_key, rank), *const d_before = in_rank(g_.d_key_before, rank);
    each_vector(h_.keys, [&](std::int64_t i, std::int64_t v) {
      const F d_after = load(d + i);
      by_key.add(v, d_after, f_.key[rank].at(i)), by_before.add(v, d_after, f_.key_before[rank].at(i));
      add(d_after, inputs_.now[rank], d_key + i), add(d_after, inputs_.before[rank], d_before + i);
    });
    return {by_key.total(), by_before.total()};
  }

  const HeadRows& h_;
  const HeadGradient& g_;
  const Frame& f_;
  const HeadValue& r_;
  const std::int64_t t_, width_;
  const RowInputs<kRanks> inputs_;
};

template <int kRanks>
void trapezoid_back(const HeadRows& h, const HeadGradient& g, std::int64_t head, std::int64_t t,
                    const float* states, float* d) {
  const std::int64_t width = padded(h.keys), floats = ranks_of<kRanks>(h) * width, first = head * h.channels;
  const HeadFrame<formulas::HeadRule::trapezoid, kRanks> f(h, head, t);
  for (float* const to : {g.d_key, g.d_query, g.d_key_before}) std::fill_n(to + t * floats, floats, 0.0f);
  float d_decay = 0, d_rate = 0, d_before = 0, d_skip = 0;
  for (std::int64_t row = first; row < first + h.channels; ++row, states += width, d += width) {
    const HeadValue r(h, head, row, t);
    TrapezoidRow<kRanks> back(h, g, f, r, t);
    back.back(states, d);
    d_decay += back.d_decay, d_rate += back.d_rate, d_before += back.d_rate_before, d_skip += back.d_skip;
  }
  g.d_rate.data[t * g.d_rate.step + head] = d_rate;
  g.d_rate_before.data[t * g.d_rate_before.step + head] = d_before;
  if (g.d_d != nullptr && h.skip_of_head) g.d_d[head] += d_skip;
  if (g.d_a != nullptr) g.d_a[head] += d_decay * f.decay * f.given;
  g.d_decay.data[t * g.d_decay.step + head] = h.a == nullptr ? d_decay : d_decay * f.decay * h.a[head];
}

// Back through one frame of a head. states: before the frame; d: of the states after it, receives that before
// it.
template <formulas::HeadRule kRule>
void linear_back(const HeadRows& h, const HeadGradient& g, std::int64_t head, std::int64_t t,
                 const float* states, float* d) {
  const std::int64_t width = padded(h.keys), first = head * h.channels;
  const HeadFrame<kRule, 1> f(h, head, t);
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

template <formulas::HeadRule kRule, int kRanks>
void frame_back(const HeadRows& h, const HeadGradient& g, std::int64_t head, std::int64_t t,
                const float* states, float* d) {
  if constexpr (kRule == formulas::HeadRule::trapezoid) {
    trapezoid_back<kRanks>(h, g, head, t, states, d);
  } else {
    linear_back<kRule>(h, g, head, t, states, d);
  }
}

// The state before each frame of [first, end) of a head, one after another, from that before the first.
template <formulas::HeadRule kRule, int kRanks>
void keep_states(const HeadRows& h, std::int64_t head, std::int64_t first, std::int64_t end, float* states) {
  const std::int64_t width = padded(h.keys), floats = h.channels * width;
  for (std::int64_t t = first; t + 1 < end; ++t, states += floats) {
    core::give_way();
    const HeadFrame<kRule, kRanks> f(h, head, t);
    for (std::int64_t c = 0; c < h.channels; ++c) {
      const HeadValue r(h, head, head * h.channels + c, t);
      advance_row<kRule, kRanks, false>(h, f, r, t, states + c * width, states + floats + c * width, nullptr);
    }
  }
}

// from: {channels, keys}, or null: zeros.
inline void load_states(const HeadRows& h, const float* from, float* to) {
  const std::int64_t width = padded(h.keys);
  std::fill_n(to, h.channels * width, 0.0f);
  for (std::int64_t c = 0; from != nullptr && c < h.channels; ++c) {
    std::copy_n(from + c * h.keys, h.keys, to + c * width);
  }
}

// scratch: the state before every kKeptFrames-th frame; the states before each frame of such a part, and one
// more; the gradient of the state.
template <formulas::HeadRule kRule, int kRanks>
void heads_back_of(const HeadRows& h, const HeadGradient& g, std::int64_t head, float* scratch) {
  const std::int64_t width = padded(h.keys), floats = h.channels * width;
  const std::int64_t parts = (h.seq + kKeptFrames - 1) / kKeptFrames;
  float *const kept = scratch + parts * floats, *const d = kept + (kKeptFrames + 1) * floats;
  load_states(h, g.initial, scratch), load_states(h, g.d_final, d);
  for (std::int64_t part = 0; part + 1 < parts; ++part) {
    std::copy_n(scratch + part * floats, floats, kept);
    keep_states<kRule, kRanks>(h, head, part * kKeptFrames, (part + 1) * kKeptFrames + 1, kept);
    std::copy_n(kept + kKeptFrames * floats, floats, scratch + (part + 1) * floats);
  }
  for (std::int64_t part = parts; part-- > 0;) {
    const std::int64_t first = part * kKeptFrames, end = std::min(h.seq, first + kKeptFrames);
    std::copy_n(scratch + part * floats, floats, kept);
    keep_states<kRule, kRanks>(h, head, first, end, kept);
    for (std::int64_t t = end; t-- > first;) {
      core::give_way();
      frame_back<kRule, kRanks>(h, g, head, t, kept + (t - first) * floats, d);
    }
  }
  for (std::int64_t c = 0; g.d_initial != nullptr && c < h.channels; ++c) {
    std::copy_n(d + c * width, h.keys, g.d_initial + c * h.keys);
  }
}

void run_heads_back(const HeadRows& h, const HeadGradient& g, std::int64_t head, float* scratch) {
  with_head_rule(h, [&](auto rule, auto ranks) { heads_back_of<rule(), ranks()>(h, g, head, scratch); });
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

HWY_EXPORT(run_heads_back);
HWY_EXPORT(run_scratch_floats);

void heads_back(const HeadRows& heads, const HeadGradient& gradient, std::int64_t head, float* scratch) {
  HWY_DYNAMIC_DISPATCH(run_heads_back)(heads, gradient, head, scratch);
}

std::int64_t head_gradient_scratch_floats(const HeadRows& heads) {
  return HWY_DYNAMIC_DISPATCH(run_scratch_floats)(heads);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
