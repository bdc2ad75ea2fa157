// What a recurrence over heads and its gradient share: sums over a row in one fixed order, and one frame of a
// row. Compiled per SIMD target; included by head_kernels.cpp and head_gradient_kernels.cpp alone.
#if defined(EXPHIL_HOST_RECURRENCE_HEAD_KERNELS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef EXPHIL_HOST_RECURRENCE_HEAD_KERNELS_INL
#undef EXPHIL_HOST_RECURRENCE_HEAD_KERNELS_INL
#else
#define EXPHIL_HOST_RECURRENCE_HEAD_KERNELS_INL
#endif

#include <cmath>

#include "core/policy/cells.hpp"
#include "host/recurrence/head_kernels.hpp"
#include "host/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

// A key or a query of one frame in whole panels, with zeros at the end.
class KeyVector {
 public:
  KeyVector() = default;
  KeyVector(const float* values, std::int64_t keys) : values_(values), whole_(keys / kPanel * kPanel) {
    for (std::int64_t i = whole_; i < keys; ++i) tail_[i - whole_] = values[i];
  }
  HWY_INLINE F at(std::int64_t i) const { return load(i < whole_ ? values_ + i : tail_ + (i - whole_)); }

 private:
  const float* values_ = nullptr;
  std::int64_t whole_ = 0;
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

inline float rate_of(const HeadRows& h, std::int64_t head, std::int64_t row, std::int64_t t) {
  return h.rate.data[t * h.rate.step + (h.rate_of_head ? head : row)];
}
inline float value_of(const HeadRows& h, std::int64_t row, std::int64_t t) {
  return h.value.data[t * h.value.step + row];
}
inline float skip_of(const HeadRows& h, std::int64_t head, std::int64_t row) {
  return h.d == nullptr ? 0.0f : h.d[h.skip_of_head ? head : row];
}
// Where the factor of a row's value in rank 0 is; that of each next rank is `channels` on.
inline std::int64_t scale_at(const HeadRows& h, std::int64_t head, std::int64_t row) {
  return head * h.ranks * h.channels + row % h.channels;
}
inline float scale_of(const HeadRows& h, std::int64_t head, std::int64_t row, std::int64_t rank) {
  return h.scale == nullptr ? 1.0f : h.scale[scale_at(h, head, row) + rank * h.channels];
}

// A row of one frame: which one, and its values.
struct HeadValue {
  HeadValue(const HeadRows& h, std::int64_t in_head, std::int64_t in_row, std::int64_t t)
      : head(in_head), row(in_row), rate(rate_of(h, head, row, t)), value(value_of(h, row, t)) {}
  const std::int64_t head, row;
  const float rate, value;
};

// What the rows of a head share in frame t. Of the linear and the delta rule; kRanks as below.
template <formulas::HeadRule kRule, int kRanks>
struct HeadFrame {
  HeadFrame(const HeadRows& h, std::int64_t head, std::int64_t t)
      : key(h.key.data + t * h.key.step + head / h.heads_of_group * h.keys, h.keys),
        query(h.query.data + t * h.query.step + head / h.heads_of_group * h.keys, h.keys),
        given(h.decay.data[t * h.decay.step + head]),
        decay(h.a == nullptr ? given : std::exp(h.a[head] * given)) {}
  const KeyVector key, query;
  const float given, decay;
};

HWY_INLINE float recall(const HeadRows& h, const float* state, const KeyVector& key) {
  LaneSums sums;
  each_vector(h.keys, [&](std::int64_t i, std::int64_t v) { sums.add(v, load(state + i), key.at(i)); });
  return sums.total();
}

// One row of a frame: its state from `from` to `to`, and <S', query> where it is wanted.
template <formulas::HeadRule kRule, bool kAnswers>
HWY_INLINE void advance_row_once(const HeadRows& h, const HeadFrame<kRule, 1>& f, const HeadValue& r,
                                 const float* from, float* to, float* answers) {
  const float recalled = kRule == formulas::HeadRule::delta ? recall(h, from, f.key) : 0.0f;
  const float input = formulas::head_input<kRule>(r.rate, r.value, f.decay, recalled);
  const F inputs = broadcast(&input), decays = broadcast(&f.decay);
  LaneSums sums;
  each_vector(h.keys, [&](std::int64_t i, std::int64_t v) {
    const F state = formulas::advance_head(load(from + i), decays, inputs, f.key.at(i));
    store(state, to + i);
    if constexpr (kAnswers) sums.add(v, state, f.query.at(i));
  });
  if constexpr (kAnswers) *answers = sums.total();
}

// ---- the trapezoidal rule ----

// kRanks: one, or 0 for as many as there are.
template <int kRanks>
inline constexpr int kMostRanks = kRanks > 0 ? kRanks : formulas::kMaxRanks;
template <int kRanks>
HWY_INLINE std::int64_t ranks_of(const HeadRows& h) {
  return kRanks > 0 ? kRanks : h.ranks;
}

template <int kRanks>
struct HeadFrame<formulas::HeadRule::trapezoid, kRanks> {
  HeadFrame(const HeadRows& h, std::int64_t head, std::int64_t t)
      : given(h.decay.data[t * h.decay.step + head]),
        decay(h.a == nullptr ? given : std::exp(h.a[head] * given)),
        rate_before(h.rate_before.data[t * h.rate_before.step + head]) {
    for (std::int64_t r = 0; r < ranks_of<kRanks>(h); ++r) {
      const std::int64_t at = (r * h.groups + head / h.heads_of_group) * h.keys;
      key[r] = {h.key.data + t * h.key.step + at, h.keys};
      query[r] = {h.query.data + t * h.query.step + at, h.keys};
      key_before[r] = {h.key_before.data + t * h.key_before.step + at, h.keys};
    }
  }
  KeyVector key[kMostRanks<kRanks>], query[kMostRanks<kRanks>], key_before[kMostRanks<kRanks>];
  const float given, decay, rate_before;
};

// The inputs of a row in each rank.
template <int kRanks>
struct RowInputs {
  RowInputs(const HeadRows& h, const HeadFrame<formulas::HeadRule::trapezoid, kRanks>& f, const HeadValue& r,
            std::int64_t t)
      : value_before(h.value_before.data[t * h.value_before.step + r.row]) {
    for (std::int64_t rank = 0; rank < ranks_of<kRanks>(h); ++rank) {
      const float scale = scale_of(h, r.head, r.row, rank), now_in_rank = r.rate * (scale * r.value),
                  before_in_rank = f.rate_before * (scale * value_before);
      now[rank] = broadcast(&now_in_rank), before[rank] = broadcast(&before_in_rank);
    }
  }
  F now[kMostRanks<kRanks>], before[kMostRanks<kRanks>];
  const float value_before;
};

template <int kRanks>
HWY_INLINE F advance_vector(const HeadRows& h, const HeadFrame<formulas::HeadRule::trapezoid, kRanks>& f,
                            const RowInputs<kRanks>& inputs, F decays, F state, std::int64_t i) {
  state = decays * state;
  for (std::int64_t rank = 0; rank < ranks_of<kRanks>(h); ++rank) {
    state = hn::MulAdd(inputs.before[rank], f.key_before[rank].at(i), state);
    state = hn::MulAdd(inputs.now[rank], f.key[rank].at(i), state);
  }
  return state;
}

template <int kRanks, bool kAnswers>
HWY_INLINE void advance_row_in_ranks(const HeadRows& h,
                                     const HeadFrame<formulas::HeadRule::trapezoid, kRanks>& f,
                                     const HeadValue& r, std::int64_t t, const float* from, float* to,
                                     float* answers) {
  const RowInputs<kRanks> inputs(h, f, r, t);
  const F decays = broadcast(&f.decay);
  LaneSums sums;
  each_vector(h.keys, [&](std::int64_t i, std::int64_t v) {
    const F state = advance_vector<kRanks>(h, f, inputs, decays, load(from + i), i);
    store(state, to + i);
    if constexpr (kAnswers) sums.add(v, state, f.query[0].at(i));
  });
  if constexpr (kAnswers) {
    answers[0] = sums.total();
    for (std::int64_t rank = 1; rank < ranks_of<kRanks>(h); ++rank)
      answers[rank] = recall(h, to, f.query[rank]);
  }
}

// One row of a frame by any rule: answers has one value of each rank.
template <formulas::HeadRule kRule, int kRanks, bool kAnswers>
HWY_INLINE void advance_row(const HeadRows& h, const HeadFrame<kRule, kRanks>& f, const HeadValue& r,
                            std::int64_t t, const float* from, float* to, float* answers) {
  if constexpr (kRule == formulas::HeadRule::trapezoid) {
    advance_row_in_ranks<kRanks, kAnswers>(h, f, r, t, from, to, answers);
  } else {
    (void)t;
    advance_row_once<kRule, kAnswers>(h, f, r, from, to, answers);
  }
}

// Calls use(the rule, the ranks), both as constants of the compiler.
template <class Use>
void with_head_rule(const HeadRows& h, const Use& use) {
  core::with_rule(h.rule, [&](auto rule) {
    if constexpr (rule() == formulas::HeadRule::trapezoid) {
      if (h.ranks > 1) return use(rule, std::integral_constant<int, 0>());
    }
    use(rule, std::integral_constant<int, 1>());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
