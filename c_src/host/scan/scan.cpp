#include "host/scan/scan.hpp"

#include <algorithm>

#include "core/half.hpp"
#include "core/parallel.hpp"
#include "host/recurrence/sequence.hpp"
#include "host/recurrence/tile.hpp"
#include "host/simd/aligned.hpp"

namespace exphil::host {

namespace {

using core::ScanProblem;

// Below this many state updates a piece is not worth a thread (about 20 us of one core).
constexpr std::int64_t kUpdatesPerPiece = 1 << 15;

// Panels of A, and of B and C where they are constant.
struct Packed {
  AlignedBuffer a, a_bounds, b, c;
};

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

const void* advance(const void* data, std::int64_t elements, std::size_t size) {
  return data == nullptr ? nullptr
                         : static_cast<const char*>(data) + elements * static_cast<std::int64_t>(size);
}

// The row of (batch, seq) where sequence b begins; its last step where time runs backwards.
std::int64_t first_row(const ScanProblem& problem, std::int64_t b, bool reverse) {
  return b * problem.seq + (reverse ? std::max<std::int64_t>(problem.seq - 1, 0) : 0);
}

// Rows {seq, dim} of one sequence, read from the last to the first where `reverse`.
Rows rows_of(const ScanProblem& problem, const void* data, std::int64_t b, bool reverse) {
  const std::int64_t first = first_row(problem, b, reverse) * problem.dim;
  return {advance(data, first, core::dtype_size(problem.dtype)), reverse ? -problem.dim : problem.dim};
}

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

ScanSequence sequence_of(const ScanProblem& problem, const ScanRule& rule, const Packed& packed,
                         const core::ScanOutputs& outputs, void* y, std::int64_t b, bool reverse) {
  ScanSequence sequence;
  sequence.seq = problem.seq;
  sequence.x = rows_of(problem, problem.x, b, reverse);
  sequence.dt = rows_of(problem, problem.dt, b, reverse);
  sequence.z = rows_of(problem, problem.z, b, reverse);
  const Rows y_rows = rows_of(problem, y, b, reverse);
  sequence.y = const_cast<void*>(y_rows.data);
  sequence.y_step = y_rows.step;
  sequence.b = projection_of(problem, rule, problem.b, problem.b_layout, packed.b, b, reverse);
  sequence.c = projection_of(problem, rule, problem.c, problem.c_layout, packed.c, b, reverse);
  sequence.a_bounds = packed.a_bounds.data();
  sequence.a_panels = packed.a.data();
  sequence.d = problem.d;
  sequence.dt_bias = problem.dt_bias;
  const std::int64_t state_row = problem.dim * rule.state * rule.parts();
  if (problem.initial_state != nullptr) sequence.initial_state = problem.initial_state + b * state_row;
  if (outputs.final_state != nullptr) sequence.final_state = outputs.final_state + b * state_row;
  if (outputs.states != nullptr) {
    sequence.states_step = reverse ? -state_row : state_row;
    sequence.states = outputs.states + first_row(problem, b, reverse) * state_row;
  }
  return sequence;
}

// Scratch of this thread, kept from call to call.
float* thread_scratch(const ScanRule& rule) {
  static thread_local AlignedBuffer scratch;
  scratch.reserve(scan_scratch_floats(rule));
  return scratch.data();
}

void run_direction(const ScanProblem& problem, const ScanRule& rule, const Packed& packed,
                   const core::ScanOutputs& outputs, void* y, bool reverse) {
  const std::int64_t blocks = panels(problem.dim);
  const std::int64_t updates = std::max<std::int64_t>(problem.seq, 1) * rule.a_block();
  const std::int64_t grain = std::max<std::int64_t>(1, kUpdatesPerPiece / updates);
  core::parallel_for(problem.batch * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    float* scratch = thread_scratch(rule);
    while (begin < end) {
      const std::int64_t b = begin / blocks, first = begin % blocks;
      const std::int64_t last = std::min(blocks, first + end - begin);
      const ScanSequence sequence = sequence_of(problem, rule, packed, outputs, y, b, reverse);
      scan_channels(rule, sequence, first, last, scratch);
      begin += last - first;
    }
  });
}

}  // namespace

void selective_scan(const ScanProblem& problem, const core::ScanOutputs& outputs) {
  const ScanRule rule = rule_of(problem);
  const Packed packed = pack(problem, rule);
  const core::Direction direction = problem.options.direction;
  run_direction(problem, rule, packed, outputs, outputs.y, direction == core::Direction::reverse);
  if (direction == core::Direction::both) {
    run_direction(problem, rule, packed, outputs, outputs.y_reverse, true);
  }
}

}  // namespace exphil::host
