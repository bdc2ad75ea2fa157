// Recurrences over heads in the reference, row by row of their states.
#include <algorithm>
#include <cmath>

#include "core/policy/reference_phases.hpp"
#include "core/scalar_math.hpp"
#include "kernels/common/heads.cuh"

namespace exphil::core {

using Math = ScalarMath<double>;
using formulas::HeadRule;

template <class T>
HeadRow::HeadRow(const HeadRecurrence& p, std::int64_t row, const BlockFrame& frame,
                 const PolicyValues<T>& weights)
    : head(row / p.channels()), group(head / (p.heads() / p.groups)) {
  const auto at = [&](const Span& span) { return frame.at(span.vector).data() + span.first; };
  rate_at = p.rate.size == p.heads() ? head : row;
  value = at(p.value)[row], rate = at(p.rate)[rate_at], decay = raw_decay = at(p.decay)[head];
  key = at(p.key) + group * p.keys(), query = at(p.query) + group * p.keys();
  if (p.a != kNone) {
    a = value_of(weights, p.a, head);
    decay = std::exp(a * raw_decay);
  }
  std::fill(scale, scale + p.ranks, 1.0);
  if (p.value_before) {
    value_before = at(p.value_before)[row], rate_before = at(p.rate_before)[head];
    key_before = at(p.key_before) + group * p.keys();
  }
  scale_at = head * p.ranks * p.channels() + row % p.channels();
  for (std::int64_t r = 0; p.scale != kNone && r < p.ranks; ++r)
    scale[r] = value_of(weights, p.scale, scale_at + scale_of(p, r));
  if (p.d == kNone) return;
  d_at = p.skips == p.heads() ? head : row;
  d = value_of(weights, p.d, d_at);
}
template HeadRow::HeadRow(const HeadRecurrence&, std::int64_t, const BlockFrame&, const PolicyValues<float>&);
template HeadRow::HeadRow(const HeadRecurrence&, std::int64_t, const BlockFrame&,
                          const PolicyValues<double>&);

namespace {

// s: the row's state.
void advance_trapezoid(const HeadRecurrence& p, const HeadRow& r, double* s) {
  for (std::int64_t k = 0; k < p.keys(); ++k) s[k] *= r.decay;
  for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
    const std::int64_t at = HeadRow::key_of(p, rank);
    const double before = r.rate_before * r.value_before * r.scale[rank],
                 now = r.rate * r.value * r.scale[rank];
    for (std::int64_t k = 0; k < p.keys(); ++k) s[k] += before * r.key_before[at + k] + now * r.key[at + k];
  }
}

template <HeadRule kRule>
void advance_row(const HeadRecurrence& p, const HeadRow& r, double* s) {
  if constexpr (kRule == HeadRule::trapezoid) return advance_trapezoid(p, r, s);
  double recalled = 0;
  for (std::int64_t k = 0; k < p.keys(); ++k) recalled += s[k] * r.key[k];
  const double input = formulas::head_input<kRule>(r.rate, r.value, r.decay, recalled);
  for (std::int64_t k = 0; k < p.keys(); ++k) s[k] = formulas::advance_head(s[k], r.decay, input, r.key[k]);
}

// The gradients of the state's row, before and after the frame.
struct RowStates {
  const double* before;
  double* d;
};

// Adds to the gradient of the state after the frame that of the row's outputs.
void outputs_back(const HeadRecurrence& p, std::int64_t row, const HeadRow& r, const RowStates& s,
                  const double* after, const ReferenceGradients& to) {
  for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
    const std::int64_t at = HeadRow::key_of(p, rank);
    const double dy = to.d(p.out)[HeadRow::out_of(p, rank) + row], scale = r.scale[rank];
    for (std::int64_t k = 0; k < p.keys(); ++k) {
      to.d(p.query)[r.group * p.keys() + at + k] += dy * after[k];
      s.d[k] += dy * r.query[at + k];
    }
    to.add(p.d, r.d_at, dy * r.value * scale);
    to.add(p.scale, r.scale_at + HeadRow::scale_of(p, rank), dy * r.value * r.d);
    to.d(p.value)[row] += dy * r.d * scale;
  }
}

// What one key and the input beside it passes back: rate, value.
struct Term {
  const double *rate, *value, *key;
  double *d_rate, *d_value, *d_key;
};
void term_back(const HeadRecurrence& p, const HeadRow& r, std::int64_t rank, const double* ds, const Term& t,
               const ReferenceGradients& to) {
  const std::int64_t at = HeadRow::key_of(p, rank);
  const double scale = r.scale[rank];
  double d_input = 0;
  for (std::int64_t k = 0; k < p.keys(); ++k) {
    d_input += ds[k] * t.key[at + k];
    t.d_key[at + k] += ds[k] * *t.rate * *t.value * scale;
  }
  *t.d_rate += d_input * *t.value * scale;
  *t.d_value += d_input * *t.rate * scale;
  to.add(p.scale, r.scale_at + HeadRow::scale_of(p, rank), d_input * *t.rate * *t.value);
}

// Returns the gradient of the decay.
double trapezoid_back(const HeadRecurrence& p, std::int64_t row, const HeadRow& r, const RowStates& s,
                      const ReferenceGradients& to) {
  const std::int64_t group = r.group * p.keys();
  const Term now{&r.rate, &r.value, r.key, to.d(p.rate) + r.head, to.d(p.value) + row, to.d(p.key) + group};
  const Term before{&r.rate_before,
                    &r.value_before,
                    r.key_before,
                    to.d(p.rate_before) + r.head,
                    to.d(p.value_before) + row,
                    to.d(p.key_before) + group};
  for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
    term_back(p, r, rank, s.d, now, to), term_back(p, r, rank, s.d, before, to);
  }
  double d_decay = 0;
  for (std::int64_t k = 0; k < p.keys(); ++k) d_decay += s.d[k] * s.before[k], s.d[k] *= r.decay;
  return d_decay;
}

template <HeadRule kRule>
double inputs_back(const HeadRecurrence& p, std::int64_t row, const HeadRow& r, const RowStates& s,
                   const ReferenceGradients& to) {
  if constexpr (kRule == HeadRule::trapezoid) return trapezoid_back(p, row, r, s, to);
  double recalled = 0, d_input = 0, d_decay = 0;
  for (std::int64_t k = 0; k < p.keys(); ++k) {
    recalled += s.before[k] * r.key[k];
    d_input += s.d[k] * r.key[k];
    d_decay += s.d[k] * s.before[k];
  }
  const double input = formulas::head_input<kRule>(r.rate, r.value, r.decay, recalled);
  const auto g = formulas::head_input_gradient<kRule, Math>(r.rate, r.value, r.decay, recalled, d_input);
  double* const d_key = to.d(p.key) + r.group * p.keys();
  for (std::int64_t k = 0; k < p.keys(); ++k) {
    d_key[k] += s.d[k] * input + g.recalled * s.before[k];
    s.d[k] = s.d[k] * r.decay + g.recalled * r.key[k];
  }
  to.d(p.rate)[r.rate_at] += g.rate;
  to.d(p.value)[row] += g.value;
  return d_decay + g.decay;
}

}  // namespace

template <class T>
void step_phase(const HeadRecurrence& p, const ReferenceInputs<T>& from, double* state, double* out) {
  for (std::int64_t row = 0; row < p.value.size; ++row) {
    const HeadRow r(p, row, from.frame, from.weights);
    double* const s = state + row * p.keys();
    with_rule(p.rule, [&](auto rule) { advance_row<rule()>(p, r, s); });
    for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
      double y = r.d * r.value * r.scale[rank];
      for (std::int64_t k = 0; k < p.keys(); ++k) y += s[k] * r.query[HeadRow::key_of(p, rank) + k];
      out[HeadRow::out_of(p, rank) + row] = y;
    }
  }
}

template <class T>
void phase_back(const HeadRecurrence& p, const ReferenceInputs<T>& from, const ReferenceGradients& to) {
  for (std::int64_t row = 0; row < p.value.size; ++row) {
    const HeadRow r(p, row, from.frame, from.weights);
    const RowStates s{from.before + row * p.keys(), to.state + row * p.keys()};
    std::vector<double> after(s.before, s.before + p.keys());
    double d_decay = 0;
    with_rule(p.rule, [&](auto rule) {
      advance_row<rule()>(p, r, after.data());
      outputs_back(p, row, r, s, after.data(), to);
      d_decay = inputs_back<rule()>(p, row, r, s, to);
    });
    if (p.a != kNone) to.add(p.a, r.head, d_decay * r.decay * r.raw_decay), d_decay *= r.decay * r.a;
    to.d(p.decay)[r.head] += d_decay;
  }
}

template void step_phase(const HeadRecurrence&, const ReferenceInputs<float>&, double*, double*);
template void step_phase(const HeadRecurrence&, const ReferenceInputs<double>&, double*, double*);
template void phase_back(const HeadRecurrence&, const ReferenceInputs<float>&, const ReferenceGradients&);
template void phase_back(const HeadRecurrence&, const ReferenceInputs<double>&, const ReferenceGradients&);

}  // namespace exphil::core
