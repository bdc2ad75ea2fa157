// The phases of Mamba-3 around its recurrence, on the CPU: cumulative angles, rotations, the coefficients of
// the trapezoidal rule, ranks. A value's result depends neither on the others of its vector nor on other
// frames. Callers: host/policy/phases.cpp and the gradient. Any thread.
#pragma once

#include <cstdint>

#include "core/policy/network.hpp"
#include "host/simd/matmul.hpp"
#include "host/simd/simd.hpp"

namespace exphil::host {

// The frames of one sequence. rate {seq, angles}, dt {seq, heads}, out {seq, heads, angles, 2}.
struct AngleRows {
  std::int64_t angles = 0;  // of a head
  MatrixRows rate, dt, out;
  const float* from = nullptr;  // {heads, angles}: before the first frame
  float* state = nullptr;       // after the last one
  std::int64_t seq = 0;
};
// Angles [begin, end) of all heads.
void advance_angles(const AngleRows& rows, std::int64_t begin, std::int64_t end);

// Values [begin, end) of the outputs of `count` rows.
struct RotationRows {
  MatrixRows in, turn, out;
  const float* bias = nullptr;
};
void rotate(const core::Rotation& rotation, const RotationRows& rows, std::int64_t count, std::int64_t begin,
            std::int64_t end);

struct TrapezoidRows {
  MatrixRows dt, a, mix, out;
};
void trapezoid_coefficients(std::int64_t heads, float floor, TrapezoidRows rows, std::int64_t count);

// Values [begin, end) of the outputs of `count` rows.
void scale_ranks(const core::RankScale& ranks, const float* weight, MatrixRows in, MatrixRows out,
                 std::int64_t count, std::int64_t begin, std::int64_t end);

}  // namespace exphil::host
