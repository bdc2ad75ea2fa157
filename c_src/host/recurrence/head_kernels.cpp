#include "host/recurrence/head_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/recurrence/head_kernels.cpp"
// clang-format off
#include "host/simd/simd.hpp"
#include <hwy/foreach_target.h>
#include <algorithm>
#include "host/recurrence/head_kernels-inl.hpp"
#include "host/simd/math-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace exphil {
namespace host {
namespace HWY_NAMESPACE {

template <formulas::HeadRule kRule, int kRanks>
void advance_heads_of(const HeadRows& h, std::int64_t begin, std::int64_t end) {
  constexpr bool kRanked = kRule == formulas::HeadRule::trapezoid;
  const std::int64_t width = padded(h.keys);
  for (std::int64_t t = 0; t < h.seq; ++t) {
    const float* const from = t == 0 ? h.from : h.states;
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t head = row / h.channels, last = std::min(end, (head + 1) * h.channels);
      const HeadFrame<kRule, kRanks> f(h, head, t);
      for (; row < last; ++row) {
        const HeadValue r(h, head, row, t);
        const float* const before = from + (row - begin) * width;
        float* const after = h.states + (row - begin) * width;
        if (t < h.unanswered) {
          advance_row<kRule, kRanks, false>(h, f, r, t, before, after, nullptr);
          continue;
        }
        float answers[kRanked ? kMostRanks<kRanks> : 1];
        advance_row<kRule, kRanks, true>(h, f, r, t, before, after, answers);
        float* const out = h.out.data + t * h.out.step + row;
        if constexpr (kRanked) {
          const float skip = skip_of(h, head, row);
          for (std::int64_t rank = 0; rank < ranks_of<kRanks>(h); ++rank)
            out[rank * h.values] = answers[rank] + skip * (scale_of(h, head, row, rank) * r.value);
        } else {
          *out = answers[0] + skip_of(h, head, row) * r.value;
        }
      }
    }
  }
}

void run_advance_heads(const HeadRows& h, std::int64_t begin, std::int64_t end) {
  with_head_rule(h, [&](auto rule, auto ranks) { advance_heads_of<rule(), ranks()>(h, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace host
}  // namespace exphil
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exphil::host {

HWY_EXPORT(run_advance_heads);

void advance_heads(const HeadRows& heads, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_advance_heads)(heads, begin, end);
}

}  // namespace exphil::host
#endif  // HWY_ONCE
