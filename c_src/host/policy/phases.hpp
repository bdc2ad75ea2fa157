// One implementation of each kind of phase on the CPU, for rows of frames or panels of outputs. Callers:
// host/policy/forward.cpp, and the gradient's forward pass. Any thread; cannot fail.
#pragma once

#include <algorithm>
#include <cstdint>

#include "host/policy/layer_kernels.hpp"
#include "host/policy/state_layout.hpp"
#include "host/policy/trapezoid_kernels.hpp"
#include "host/policy/weights.hpp"
#include "host/recurrence/head_kernels.hpp"

namespace exphil::host {

// Sequences of a pass, agent after agent: `frames` rows each.
struct PassRows {
  float* const* states = nullptr;  // {agents}, advanced by `frames`
  // {agents}: where each state is read, if it is not advanced in place. Only for passes of one frame.
  float* const* from = nullptr;
  std::int64_t agents = 0, frames = 0;
  std::int64_t length = 0;  // by which core::decays_input decides
};

// What a lane needs for the phases of a block.
struct PhaseRun {
  const PassRows& rows;
  const StateLayout& layout;
  const MatrixRows* at = nullptr;  // of each vector, its rows
  float* scratch = nullptr;        // ForwardPlan::scan_floats
  std::int64_t unused = 0;         // outputs of so many first rows are not read
};

// Rows [first, first + count) and panels [begin, end) of the outputs. A phase with a state takes all rows of
// the pass; from row `first` on where the pass is one frame of a longer one.
struct Piece {
  std::int64_t first = 0, count = 0, begin = 0, end = 0;
};

using RunPhase = void (*)(const core::Phase& phase, const PackedPhase& packed, const PhaseRun& run,
                          const Piece& piece);
// The implementation of a phase's kind. Found once: a small policy's step is as fast as its dispatch.
RunPhase runner_of(const core::Phase& phase);

// ---- also for the gradient ----

// The rows of a vector or a part of it from row `first` on.
inline MatrixRows rows_at(const MatrixRows* at, const core::Span& span, std::int64_t first) {
  const MatrixRows& rows = at[span.vector];
  return {rows.data + first * rows.step + span.first, rows.step};
}

// Values [begin, end) of `count` rows.
inline void copy_rows(MatrixRows from, MatrixRows to, std::int64_t count, std::int64_t begin,
                      std::int64_t end) {
  for (std::int64_t row = 0; row < count; ++row, from.data += from.step, to.data += to.step) {
    std::copy(from.data + begin, from.data + end, to.data + begin);
  }
}

// The first phase of the walk that ends with phase `last` of a block, and the last phase of one that begins
// with phase `first`. A walk is what runs frame by frame: from a recall to the cell that owns what it reads.
// A phase that begins or ends none is its own.
std::size_t walk_begin(const core::Block& block, std::size_t last);
std::size_t walk_end(const core::Block& block, std::size_t first);

// The kernels' arguments for `count` rows of one sequence from row `first` on, without its state.
Convolution convolution_of(const core::Convolution& phase, const PackedPhase& packed, const MatrixRows* at,
                           std::int64_t first, std::int64_t count);
CellRows cell_of(const core::GatedCell& phase, const MatrixRows* at, std::int64_t first, std::int64_t count);
HeadRows heads_of(const core::HeadRecurrence& phase, const PackedPhase& packed, const MatrixRows* at,
                  std::int64_t first, std::int64_t count);
ScanSequence scan_of(const core::SelectiveScan& phase, const PackedPhase& packed, const MatrixRows* at,
                     std::int64_t first, std::int64_t count, std::int64_t length);

}  // namespace exphil::host
