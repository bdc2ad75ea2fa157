#include "host/scan/gradient.hpp"

#include <algorithm>

#include "core/half.hpp"
#include "core/work/parallel.hpp"
#include "host/recurrence/gradient.hpp"
#include "host/scan/operands.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

using core::ScanGradOutputs;
using core::ScanGradProblem;
using core::ScanShape;

void put(core::Dtype dtype, float value, void* to, std::int64_t index) {
  switch (dtype) {
    case core::Dtype::f16:
      static_cast<std::uint16_t*>(to)[index] = core::f32_to_f16(value);
      return;
    case core::Dtype::bf16:
      static_cast<std::uint16_t*>(to)[index] = core::f32_to_bf16(value);
      return;
    default:
      static_cast<float*>(to)[index] = value;
  }
}

// A gradient that all sequences share: a separate array for each sequence, summed in order at the end.
struct Shared {
  std::int64_t floats = 0;  // of one sequence
  AlignedBuffer memory;

  Shared(std::int64_t of_one, std::int64_t batch) : floats(of_one), memory(of_one * batch) {}
  float* at(std::int64_t b) { return floats == 0 ? nullptr : memory.data() + b * floats; }

  // Sums into the first sequence's array.
  float* total(std::int64_t batch) {
    float* to = memory.data();
    core::parallel_for(floats, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = 1; b < batch; ++b) {
        const float* from = to + b * floats;
        for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    });
    return to;
  }
};

// The sums of dB or dC while the parts run.
class ProjectionSums {
 public:
  ProjectionSums(const ScanShape& problem, const ScanRule& rule, const core::ProjectionLayout& layout)
      : p_(problem),
        rule_(rule),
        layout_(layout),
        row_(rule.state * rule.parts()),
        panels_(layout.constant ? panels(rule.dim) * rule.state_block() : 0, problem.batch),
        sums_(layout.constant ? 0 : sum_slots(rule.dim, layout.groups) * tiles(problem.seq) * row_ * kTile,
              problem.batch) {}

  ProjectionGradient of(std::int64_t b) { return {sums_.at(b), panels_.at(b)}; }

  void write(bool reverse, void* to) {
    if (to == nullptr) return;
    if (layout_.constant) return write_constant(to);
    core::parallel_for(p_.batch * tiles(p_.seq), 4, [&](std::int64_t begin, std::int64_t end) {
      AlignedBuffer tile(row_ * kTile);
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t group = 0; group < layout_.groups; ++group) {
          write_tile(i / tiles(p_.seq), i % tiles(p_.seq), group, reverse, tile.data(), to);
        }
      }
    });
  }

 private:
  core::Dtype dtype() const { return p_.complex ? core::Dtype::f32 : p_.dtype; }

  void write_constant(void* to) {
    AlignedBuffer rows(padded(rule_.dim) * row_);
    unpack_panels(panels_.total(p_.batch), rule_.dim, row_, rows.data());
    for (std::int64_t i = 0; i < rule_.dim * row_; ++i) put(dtype(), rows.data()[i], to, i);
  }

  void write_tile(std::int64_t b, std::int64_t index, std::int64_t group, bool reverse, float* tile,
                  void* to) {
    const std::int64_t per_group = rule_.dim / layout_.groups, floats = row_ * kTile;
    const std::int64_t first = group * per_group / kPartChannels;
    const std::int64_t last = ((group + 1) * per_group - 1) / kPartChannels;
    std::fill(tile, tile + floats, 0.0f);
    for (std::int64_t part = first; part <= last; ++part) {
      const float* from = sums_.at(b) + ((part + group) * tiles(p_.seq) + index) * floats;
      for (std::int64_t i = 0; i < floats; ++i) tile[i] += from[i];
    }
    const std::int64_t steps = std::min(kTile, p_.seq - index * kTile);
    for (std::int64_t s = 0; s < steps; ++s) {
      const std::int64_t i = index * kTile + s, t = reverse ? p_.seq - 1 - i : i;
      const std::int64_t at = ((b * p_.seq + t) * layout_.groups + group) * row_;
      for (std::int64_t n = 0; n < row_; ++n) put(dtype(), tile[n * kTile + s], to, at + n);
    }
  }

  const ScanShape& p_;
  const ScanRule& rule_;
  const core::ProjectionLayout layout_;
  const std::int64_t row_;
  Shared panels_, sums_;
};

void* result_rows(const ScanShape& problem, void* data, std::int64_t b, bool reverse) {
  return const_cast<void*>(rows_of(problem, data, b, reverse).data);
}

}  // namespace

void selective_scan_grad(const ScanGradProblem& problem, const ScanGradOutputs& outputs) {
  const ScanShape& scan = problem.scan.shape;
  const ScanRule rule = rule_of(scan);
  const Packed packed = pack(problem.scan, rule);
  const bool reverse = scan.options.direction == core::Direction::reverse;
  Shared da(panels(rule.dim) * rule.a_block(), scan.batch);
  Shared dd(outputs.d == nullptr ? 0 : padded(rule.dim), scan.batch);
  Shared d_bias(outputs.dt_bias == nullptr ? 0 : padded(rule.dim), scan.batch);
  ProjectionSums db(scan, rule, scan.b_layout), dc(scan, rule, scan.c_layout);
  const std::int64_t parts = parts_of(rule.dim), row = rule.state * rule.parts();
  core::parallel_for(scan.batch * parts, 1, [&](std::int64_t begin, std::int64_t end) {
    AlignedBuffer large;
    float* scratch =
        thread_scratch(Scratch::gradient, gradient_scratch_floats(rule, scan.seq, false), &large);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / parts, state = b * rule.dim * row;
      GradientSequence sequence;
      sequence.scan = operands_of(problem.scan, rule, packed, b, reverse);
      sequence.dy = rows_of(scan, problem.dy, b, reverse);
      if (problem.d_final_state != nullptr) sequence.d_final_state = problem.d_final_state + state;
      if (problem.states != nullptr) {
        sequence.states = problem.states + first_row(scan, b, reverse) * rule.dim * row;
        sequence.states_step = reverse ? -rule.dim * row : rule.dim * row;
      }
      sequence.dx = result_rows(scan, outputs.x, b, reverse);
      sequence.ddt = result_rows(scan, outputs.dt, b, reverse);
      sequence.dz = result_rows(scan, outputs.z, b, reverse);
      sequence.da = da.at(b), sequence.dd = dd.at(b), sequence.d_bias = d_bias.at(b);
      if (outputs.initial_state != nullptr) sequence.d_initial = outputs.initial_state + state;
      sequence.b = db.of(b), sequence.c = dc.of(b);
      gradient_part(rule, sequence, i % parts, scratch);
    }
  });
  db.write(reverse, outputs.b);
  dc.write(reverse, outputs.c);
  if (outputs.a != nullptr) unpack_panels(da.total(scan.batch), rule.dim, rule.a_block() / kPanel, outputs.a);
  if (outputs.d != nullptr) std::copy_n(dd.total(scan.batch), rule.dim, outputs.d);
  if (outputs.dt_bias != nullptr) std::copy_n(d_bias.total(scan.batch), rule.dim, outputs.dt_bias);
}

}  // namespace exphil::host
