// The loops of the associative scans on the CPU, compiled for every SIMD target. They process the steps one
// after another in the given direction. Callers: host/associative/scan.cpp. Any thread.
#pragma once

#include <cstdint>

#include "core/associative/problem.hpp"

namespace exphil::host {

// Several sequences in parallel, one column per lane. One step reads and writes `columns` consecutive
// elements; the next step's are `stride` elements further (backwards where negative).
struct ColumnSweep {
  core::AssociativeOp op = core::AssociativeOp::cumsum;
  core::Dtype dtype = core::Dtype::f32;
  bool compensated = false;
  const void *a = nullptr, *x = nullptr;  // at the first step
  const void* initial = nullptr;          // of the first column; null for none
  void* y = nullptr;
  std::int64_t length = 0, stride = 0, columns = 0;
};

// The most columns of one sweep, so that the carried values fit in the L1 cache.
inline constexpr std::int64_t kMaxSweepColumns = 1024;
void sweep_columns(const ColumnSweep& sweep);

// One sequence of consecutive elements, scanned backwards with `reverse`. The elements of a vector are
// combined by log-steps in a register; where a result is not finite, or a product of decays underflows,
// they are processed one by one, so that NaN, infinities and overflow follow the definition.
struct RowSweep {
  core::AssociativeOp op = core::AssociativeOp::cumsum;
  core::Dtype dtype = core::Dtype::f32;
  bool compensated = false, reverse = false;
  const void *a = nullptr, *x = nullptr;  // at element 0, whatever the direction
  const void* initial = nullptr;          // one element; null for none
  void* y = nullptr;
  std::int64_t length = 0;
};
void sweep_row(const RowSweep& sweep);

}  // namespace exphil::host
