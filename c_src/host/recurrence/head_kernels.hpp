// A recurrence over heads (kernels/common/heads.cuh) on the CPU, row by row of its states: forward, and its
// gradient. Callers: host/policy/phases.cpp and its gradient, host/ssd. Any thread.
#pragma once

#include <cstdint>

#include "host/simd/matmul.hpp"
#include "host/simd/simd.hpp"
#include "kernels/common/heads.cuh"

namespace exphil::host {

// The frames of one sequence.
struct HeadRows {
  formulas::HeadRule rule = formulas::HeadRule::linear;
  std::int64_t keys = 0, channels = 0, heads_of_group = 1;  // channels: of a head
  MatrixRows value, key, query, rate, decay, out;           // {seq, ...}
  // Of the trapezoidal rule. values: of all heads; scale: null, or the factors of ranks.
  MatrixRows value_before, key_before, rate_before;
  std::int64_t ranks = 1, groups = 1, values = 0;
  const float* scale = nullptr;
  bool rate_of_head = true, skip_of_head = true;  // else one for each value
  const float *a = nullptr, *d = nullptr;         // null where there is none
  // {rows, padded(keys)}: the states of the rows that a call advances; from: where the first frame reads
  // them.
  float* states = nullptr;
  const float* from = nullptr;
  std::int64_t seq = 0;
  std::int64_t unanswered = 0;  // so many first frames have no output
};
// Rows, that is values, [begin, end) of all heads.
void advance_heads(const HeadRows& heads, std::int64_t begin, std::int64_t end);

// What advance_heads() passes back for the rows of one head.
struct HeadGradient {
  const float* initial =
      nullptr;  // {channels, keys}: the states of the head before the first frame; null: zeros
  // As `initial`: the gradient of the states after the last frame, null: zeros; receives that of `initial`,
  // null: not wanted.
  const float* d_final = nullptr;
  float* d_initial = nullptr;
  MatrixRows d_out;                            // of all heads, as are the others
  MatrixRows d_value, d_rate, d_decay;         // stored
  float *d_key = nullptr, *d_query = nullptr;  // {seq, ranks, padded(keys)}: of this head alone; stored
  float *d_a = nullptr, *d_d = nullptr;        // added to; null where there is none
  MatrixRows d_value_before, d_rate_before;    // of the trapezoidal rule: stored
  float *d_key_before = nullptr, *d_scale = nullptr;
};
std::int64_t head_gradient_scratch_floats(const HeadRows& heads);
void heads_back(const HeadRows& heads, const HeadGradient& gradient, std::int64_t head, float* scratch);

}  // namespace exphil::host
