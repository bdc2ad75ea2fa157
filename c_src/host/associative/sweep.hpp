// The loops of the associative scans on the CPU, compiled for every SIMD target. Time is walked in order,
// from the first step to the last of the direction asked for. Callers: host/associative/scan.cpp. Any thread.
#pragma once

#include <cstdint>

#include "core/associative/problem.hpp"

namespace exphil::host {

// Sequences side by side: a lane is a column. One step reads and writes `columns` consecutive elements; the
// next step's lie `stride` elements further (backwards where negative).
struct ColumnSweep {
  core::AssociativeOp op = core::AssociativeOp::cumsum;
  core::Dtype dtype = core::Dtype::f32;
  bool compensated = false;
  const void *a = nullptr, *x = nullptr;  // at the first step
  void* y = nullptr;
  std::int64_t length = 0, stride = 0, columns = 0;
};

// At most this many columns in one sweep: what it carries stays in the first-level cache.
inline constexpr std::int64_t kMaxSweepColumns = 1024;
void sweep_columns(const ColumnSweep& sweep);

// One sequence of consecutive elements, walked backwards with `reverse`. A vector of elements is joined by
// log-steps inside a register. Where its results are not all finite, or a product of decays vanishes, those
// elements are walked one by one, so that NaN, infinities and overflow come out as in the definition.
struct RowSweep {
  core::AssociativeOp op = core::AssociativeOp::cumsum;
  core::Dtype dtype = core::Dtype::f32;
  bool compensated = false, reverse = false;
  const void *a = nullptr, *x = nullptr;  // at element 0, whatever the direction
  void* y = nullptr;
  std::int64_t length = 0;
};
void sweep_row(const RowSweep& sweep);

}  // namespace exphil::host
