// Which phases a walk has, and the arguments of kernels for rows of one sequence.
#include "host/policy/phases.hpp"

namespace exphil::host {

std::size_t walk_end(const core::Block& block, std::size_t first) {
  std::size_t last = first;
  for (std::size_t i = first; i <= last; ++i) {
    const core::StateId recalled = core::recalled_by(block[i]);
    if (recalled == core::kNone) continue;
    for (std::size_t owner = i + 1; owner < block.size(); ++owner) {
      if (core::state_of(block[owner]) == recalled) last = std::max(last, owner);
    }
  }
  return last;
}

std::size_t walk_begin(const core::Block& block, std::size_t last) {
  for (std::size_t first = 0; first < last; ++first) {
    if (core::recalled_by(block[first]) != core::kNone && walk_end(block, first) >= last) return first;
  }
  return last;
}

CellRows cell_of(const core::GatedCell& phase, const MatrixRows* at, std::int64_t first, std::int64_t count) {
  CellRows cell;
  cell.cell = phase.cell;
  for (std::size_t g = 0; g < phase.x.size(); ++g) {
    if (phase.x[g]) cell.x[g] = rows_at(at, phase.x[g], first);
    if (phase.h[g]) cell.h[g] = rows_at(at, phase.h[g], first);
  }
  cell.out = rows_at(at, phase.out, first);
  cell.step = padded(phase.out.size), cell.seq = count;
  return cell;
}

HeadRows heads_of(const core::HeadRecurrence& phase, const PackedPhase& packed, const MatrixRows* at,
                  std::int64_t first, std::int64_t count) {
  HeadRows heads;
  heads.rule = phase.rule;
  heads.keys = phase.keys(), heads.channels = phase.channels();
  heads.heads_of_group = phase.heads() / phase.groups;
  heads.value = rows_at(at, phase.value, first), heads.key = rows_at(at, phase.key, first);
  heads.query = rows_at(at, phase.query, first), heads.rate = rows_at(at, phase.rate, first);
  heads.decay = rows_at(at, phase.decay, first), heads.out = rows_at(at, phase.out, first);
  if (phase.value_before) {
    heads.value_before = rows_at(at, phase.value_before, first);
    heads.key_before = rows_at(at, phase.key_before, first);
    heads.rate_before = rows_at(at, phase.rate_before, first);
  }
  heads.ranks = phase.ranks, heads.groups = phase.groups, heads.values = phase.value.size;
  heads.rate_of_head = phase.rate.size == phase.heads(), heads.skip_of_head = phase.skips == phase.heads();
  heads.a = packed.weights[kWeight], heads.d = packed.weights[kSkip], heads.scale = packed.weights[kBias];
  heads.seq = count;
  return heads;
}

Convolution convolution_of(const core::Convolution& phase, const PackedPhase& packed, const MatrixRows* at,
                           std::int64_t first, std::int64_t count) {
  Convolution convolution;
  convolution.taps = phase.taps;
  convolution.step = at[phase.out.vector].step;
  convolution.weights = packed.weights[kWeight];
  convolution.bias = packed.weights[kBias];
  const MatrixRows x = rows_at(at, phase.in, first);
  convolution.x = x.data, convolution.x_step = x.step;
  convolution.out = rows_at(at, phase.out, first).data;
  convolution.seq = count;
  return convolution;
}

ScanSequence scan_of(const core::SelectiveScan& phase, const PackedPhase& packed, const MatrixRows* at,
                     std::int64_t first, std::int64_t count, std::int64_t length) {
  const auto rows = [=](const core::Span& span) {
    const MatrixRows found = rows_at(at, span, first);
    return Rows{found.data, found.step};
  };
  const auto projection = [=](const core::Span& span) {
    const MatrixRows found = rows_at(at, span, first);
    return Projection{found.data, found.step, 1, false};
  };
  const MatrixRows y = rows_at(at, phase.out, first);
  // All at once: to clear it first takes longer than the rest.
  return {count,
          rows(phase.x),
          rows(phase.dt),
          rows(phase.z),
          y.data,
          y.step,
          projection(phase.b),
          projection(phase.c),
          packed.a_bounds,
          packed.weights[kWeight],
          packed.weights[kSkip],
          packed.weights[kBias],
          phase.input_dt ? rows_at(at, phase.input_dt, first).data : nullptr,
          core::decays_input(phase, length)};
}

}  // namespace exphil::host
