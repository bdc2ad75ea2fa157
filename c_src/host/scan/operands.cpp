#include "host/scan/operands.hpp"

#include <algorithm>

#include "core/half.hpp"

namespace exphil::host {

using core::ScanCall;
using core::ScanOperand;
using core::ScanShape;

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

ScanRule rule_of(const ScanShape& shape) {
  ScanRule rule;
  rule.dim = shape.dim;
  rule.state = shape.state;
  rule.dtype = shape.dtype;
  rule.complex = shape.complex;
  rule.full_matrix = shape.full_matrix;
  rule.discretization = shape.options.discretization;
  rule.dt_softplus = shape.options.dt_softplus;
  rule.dt_min = shape.options.dt_min;
  rule.dt_max = shape.options.dt_max;
  return rule;
}

Packed pack(const ScanCall& call, const ScanRule& rule) {
  Packed packed;
  packed.a = AlignedBuffer(panels(rule.dim) * rule.a_block());
  pack_a(rule, static_cast<const float*>(call.operands[ScanOperand::a]), packed.a.data());
  packed.a_bounds = AlignedBuffer(panels(rule.dim));
  bounds_of(rule, packed.a.data(), packed.a_bounds.data());
  packed.b = pack_constant(rule, call.operands[ScanOperand::b], call.shape.b_layout);
  packed.c = pack_constant(rule, call.operands[ScanOperand::c], call.shape.c_layout);
  return packed;
}

std::int64_t first_row(const ScanShape& shape, std::int64_t b, bool reverse) {
  return b * shape.seq + (reverse ? std::max<std::int64_t>(shape.seq - 1, 0) : 0);
}

Rows rows_of(const ScanShape& shape, const void* data, std::int64_t b, bool reverse) {
  const std::int64_t first = first_row(shape, b, reverse) * shape.dim;
  return {advance(data, first, core::dtype_size(shape.dtype)), reverse ? -shape.dim : shape.dim};
}

namespace {

Projection projection_of(const ScanShape& shape, const ScanRule& rule, const void* data,
                         const core::ProjectionLayout& layout, const AlignedBuffer& packed, std::int64_t b,
                         bool reverse) {
  if (layout.constant) return {packed.data(), 0, 1, true};
  // A c64 row is read as twice as many floats.
  const std::int64_t step = layout.groups * rule.state * rule.parts();
  const std::size_t size = rule.complex ? sizeof(float) : core::dtype_size(shape.dtype);
  const std::int64_t first = first_row(shape, b, reverse) * step;
  return {advance(data, first, size), reverse ? -step : step, layout.groups, false};
}

}  // namespace

ScanSequence operands_of(const ScanCall& call, const ScanRule& rule, const Packed& packed, std::int64_t b,
                         bool reverse) {
  const ScanShape& shape = call.shape;
  const core::ScanOperands<void*>& from = call.operands;
  ScanSequence sequence;
  sequence.seq = shape.seq;
  sequence.x = rows_of(shape, from[ScanOperand::x], b, reverse);
  sequence.dt = rows_of(shape, from[ScanOperand::dt], b, reverse);
  sequence.z = rows_of(shape, from[ScanOperand::z], b, reverse);
  sequence.b = projection_of(shape, rule, from[ScanOperand::b], shape.b_layout, packed.b, b, reverse);
  sequence.c = projection_of(shape, rule, from[ScanOperand::c], shape.c_layout, packed.c, b, reverse);
  sequence.a_bounds = packed.a_bounds.data();
  sequence.a_panels = packed.a.data();
  sequence.d = static_cast<const float*>(from[ScanOperand::d]);
  sequence.dt_bias = static_cast<const float*>(from[ScanOperand::dt_bias]);
  if (const auto* initial = static_cast<const float*>(from[ScanOperand::initial_state])) {
    sequence.initial_state = initial + b * shape.dim * rule.state * rule.parts();
  }
  return sequence;
}

}  // namespace exphil::host
