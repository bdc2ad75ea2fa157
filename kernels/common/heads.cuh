// One step of a recurrence whose state is a matrix for each head, {channels, keys}, and its gradient.
// Compiled as formulas.cuh is, for the same value types and math policies: by the scalar reference, for each
// SIMD target and by NVRTC.
//
// A head's row of one channel is advanced by itself, from the key and the query of its group, the decay of
// its head, and its own value and rate:
//
//   linear   S' = decay S + (rate value) key^T                                   (Dao and Gu 2024, Mamba-2)
//   delta    S' = decay S + (rate (value - decay <S, key>)) key^T                 (Yang et al. 2024, gated)
//   trapezoid  S' = decay S + the sum over ranks of (rate_before value_before) key_before^T
//                + (rate value) key^T                                              (Mamba-3)
//   out = <S', query>, of each rank
#if !defined(EXPHIL_HEADS_CUH) || defined(EXPHIL_FORMULAS_BEGIN)
#ifndef EXPHIL_HEADS_CUH
#define EXPHIL_HEADS_CUH
namespace exphil {
namespace formulas {
// The numbers are part of the kernels' interface: append only.
enum class HeadRule : int { linear = 0, delta = 1, trapezoid = 2 };
constexpr int kMaxRanks = 16;
}  // namespace formulas
}  // namespace exphil
#endif

#ifndef EXPHIL_FORMULAS_BEGIN
#include "kernels/common/gradient_formulas.cuh"
#endif

#ifdef EXPHIL_FORMULAS_BEGIN
EXPHIL_FORMULAS_BEGIN
using ::exphil::formulas::HeadRule;
using ::exphil::formulas::kMaxRanks;
#else
namespace exphil {
namespace formulas {
#endif

// What a row adds to its state for each unit of the key. recalled: <S, key>, of the delta rule.
template <HeadRule kRule, class V>
EXPHIL_FN V head_input(V rate, V value, V decay, V recalled) {
  if constexpr (kRule != HeadRule::delta) {
    (void)decay, (void)recalled;
    return rate * value;
  } else {
    return rate * (value - decay * recalled);
  }
}

template <class V>
EXPHIL_FN V advance_head(V state, V decay, V input, V key) {
  return decay * state + input * key;
}

// What head_input() passes back from the gradient of its result.
template <class V>
struct HeadInputGradient {
  V rate, value, decay, recalled;
};
template <HeadRule kRule, class M, class V>
EXPHIL_FN HeadInputGradient<V> head_input_gradient(V rate, V value, V decay, V recalled, V d_input) {
  if constexpr (kRule != HeadRule::delta) {
    (void)decay, (void)recalled;
    return {d_input * value, d_input * rate, M::set(value, 0.0), M::set(value, 0.0)};
  } else {
    const V of_error = d_input * rate, of_recalled = M::set(value, 0.0) - of_error;
    return {d_input * (value - decay * recalled), of_error, of_recalled * recalled, of_recalled * decay};
  }
}

#ifdef EXPHIL_FORMULAS_BEGIN
EXPHIL_FORMULAS_END
#else
}  // namespace formulas
}  // namespace exphil
#endif

#endif
