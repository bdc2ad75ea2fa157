#include "host/scan/operands.hpp"

#include <algorithm>

#include "core/half.hpp"

namespace exphil::host {

using core::ScanProblem;

namespace {

void widen(core::Dtype dtype, const void* from, std::int64_t count, float* to) {
  const auto* halves = static_cast<const std::uint16_t*>(from);
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = dtype == core::Dtype::f16 ? core::f16_to_f32(halves[i]) : core::bf16_to_f32(halves[i]);
  }
}

AlignedBuffer pack_constant(const ScanRule& rule, const void* from, const core::ProjectionLayout& layout) {
  if (!layout.constant) return {};
  const std::int64_t row = rule.state * rule.parts();
  AlignedBuffer packed(panels(rule.dim) * row * kPanel);
  if (rule.complex || rule.dtype == core::Dtype::f32) {
    pack_panels(static_cast<const float*>(from), rule.dim, row, packed.data());
  } else {
    AlignedBuffer widened(rule.dim * row);
    widen(rule.dtype, from, rule.dim * row, widened.data());
    pack_panels(widened.data(), rule.dim, row, packed.data());
  }
  return packed;
}

const void* advance(const void* data, std::int64_t elements, std::size_t size) {
  return data == nullptr ? nullptr
                         : static_cast<const char*>(data) + elements * static_cast<std::int64_t>(size);
}

}  // namespace

ScanRule rule_of(const ScanProblem& problem) {
  ScanRule rule;
  rule.dim = problem.dim;
  rule.state = problem.state;
  rule.dtype = problem.dtype;
  rule.complex = problem.complex;
  rule.full_matrix = problem.full_matrix;
  rule.discretization = problem.options.discretization;
  rule.dt_softplus = problem.options.dt_softplus;
  rule.dt_min = problem.options.dt_min;
  rule.dt_max = problem.options.dt_max;
  return rule;
}

Packed pack(const ScanProblem& problem, const ScanRule& rule) {
  Packed packed;
  packed.a = AlignedBuffer(panels(rule.dim) * rule.a_block());
  pack_a(rule, problem.a, packed.a.data());
  packed.a_bounds = AlignedBuffer(panels(rule.dim));
  bounds_of(rule, packed.a.data(), packed.a_bounds.data());
  packed.b = pack_constant(rule, problem.b, problem.b_layout);
  packed.c = pack_constant(rule, problem.c, problem.c_layout);
  return packed;
}

std::int64_t first_row(const ScanProblem& problem, std::int64_t b, bool reverse) {
  return b * problem.seq + (reverse ? std::max<std::int64_t>(problem.seq - 1, 0) : 0);
}

Rows rows_of(const ScanProblem& problem, const void* data, std::int64_t b, bool reverse) {
  const std::int64_t first = first_row(problem, b, reverse) * problem.dim;
  return {advance(data, first, core::dtype_size(problem.dtype)), reverse ? -problem.dim : problem.dim};
}

namespace {

Projection projection_of(const ScanProblem& problem, const ScanRule& rule, const void* data,
                         const core::ProjectionLayout& layout, const AlignedBuffer& packed, std::int64_t b,
                         bool reverse) {
  if (layout.constant) return {packed.data(), 0, 1, true};
  // A c64 row is read as twice as many floats.
  const std::int64_t step = layout.groups * rule.state * rule.parts();
  const std::size_t size = rule.complex ? sizeof(float) : core::dtype_size(problem.dtype);
  const std::int64_t first = first_row(problem, b, reverse) * step;
  return {advance(data, first, size), reverse ? -step : step, layout.groups, false};
}

}  // namespace

ScanSequence operands_of(const ScanProblem& problem, const ScanRule& rule, const Packed& packed,
                         std::int64_t b, bool reverse) {
  ScanSequence sequence;
  sequence.seq = problem.seq;
  sequence.x = rows_of(problem, problem.x, b, reverse);
  sequence.dt = rows_of(problem, problem.dt, b, reverse);
  sequence.z = rows_of(problem, problem.z, b, reverse);
  sequence.b = projection_of(problem, rule, problem.b, problem.b_layout, packed.b, b, reverse);
  sequence.c = projection_of(problem, rule, problem.c, problem.c_layout, packed.c, b, reverse);
  sequence.a_bounds = packed.a_bounds.data();
  sequence.a_panels = packed.a.data();
  sequence.d = problem.d;
  sequence.dt_bias = problem.dt_bias;
  const std::int64_t state_row = problem.dim * rule.state * rule.parts();
  if (problem.initial_state != nullptr) sequence.initial_state = problem.initial_state + b * state_row;
  return sequence;
}

}  // namespace exphil::host
