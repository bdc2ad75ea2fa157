#include "host/associative/scan.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"
#include "host/associative/sweep.hpp"

namespace exphil::host {

namespace {

using core::AssociativeOp;
using core::AssociativeProblem;
using core::Direction;
using core::Dtype;

constexpr std::int64_t kGrainElements = 32768;  // for one piece of work: tens of microseconds

// A complex sum is the sum of its real and imaginary parts, so it is computed as two columns.
AssociativeProblem in_real_parts(AssociativeProblem problem) {
  if (problem.op == AssociativeOp::cumsum && problem.dtype == Dtype::c64) {
    problem.dtype = Dtype::f32;
    problem.inner *= 2;
  }
  return problem;
}

std::int64_t grain_of(std::int64_t elements_in_each) {
  return std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(1, elements_in_each));
}

void scan_columns(const AssociativeProblem& p, bool reverse, char* y) {
  const std::int64_t size = static_cast<std::int64_t>(core::dtype_size(p.dtype));
  const std::int64_t wide = std::min(p.inner, kMaxSweepColumns);
  const std::int64_t pieces = (p.inner + wide - 1) / wide;
  core::parallel_for(p.outer * pieces, grain_of(wide * p.length), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t column = piece % pieces * wide;
      const std::int64_t step = reverse ? p.length - 1 : 0;
      const std::int64_t offset = ((piece / pieces * p.length + step) * p.inner + column) * size;
      ColumnSweep sweep{p.op, p.dtype, p.compensated};
      sweep.x = static_cast<const char*>(p.x) + offset;
      if (p.a != nullptr) sweep.a = static_cast<const char*>(p.a) + offset;
      if (p.initial != nullptr) {
        sweep.initial = static_cast<const char*>(p.initial) + (piece / pieces * p.inner + column) * size;
      }
      sweep.y = y + offset;
      sweep.length = p.length;
      sweep.stride = reverse ? -p.inner : p.inner;
      sweep.columns = std::min(wide, p.inner - column);
      sweep_columns(sweep);
    }
  });
}

void scan_rows(const AssociativeProblem& p, bool reverse, char* y) {
  const std::int64_t size = static_cast<std::int64_t>(core::dtype_size(p.dtype)), bytes = p.length * size;
  core::parallel_for(p.outer, grain_of(p.length), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      RowSweep sweep{p.op, p.dtype, p.compensated, reverse};
      sweep.x = static_cast<const char*>(p.x) + row * bytes;
      if (p.a != nullptr) sweep.a = static_cast<const char*>(p.a) + row * bytes;
      if (p.initial != nullptr) sweep.initial = static_cast<const char*>(p.initial) + row * size;
      sweep.y = y + row * bytes;
      sweep.length = p.length;
      sweep_row(sweep);
    }
  });
}

void scan_direction(const AssociativeProblem& problem, bool reverse, void* y) {
  if (problem.inner == 1) return scan_rows(problem, reverse, static_cast<char*>(y));
  scan_columns(problem, reverse, static_cast<char*>(y));
}

}  // namespace

void associative_scan(const AssociativeProblem& problem, const core::AssociativeOutputs& outputs) {
  if (problem.elements() == 0) return;
  const AssociativeProblem p = in_real_parts(problem);
  const bool both = p.direction == Direction::both;
  scan_direction(p, p.direction == Direction::reverse, outputs.y);
  if (both) scan_direction(p, true, outputs.y_reverse);
}

}  // namespace exphil::host
