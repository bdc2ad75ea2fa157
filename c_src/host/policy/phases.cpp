#include "host/policy/phases.hpp"

#include <variant>

namespace exphil::host {

namespace {

class Runner {
 public:
  Runner(const PackedPhase& packed, const PhaseRun& run, const Piece& piece)
      : packed_(packed), run_(run), piece_(piece) {}

  void operator()(const core::Copy& phase) const {
    if (phase.adds) return add(phase.in, phase.out);
    copy(phase.in, phase.out);
    // The rest of the last panel may have values of a block before this one.
    const MatrixRows out = rows(phase.out);
    const std::int64_t size = phase.out.size, width = std::min(piece_.end * kPanel, padded(size));
    for (std::int64_t i = 0; i < piece_.count && size < width; ++i)
      std::fill(out.data + i * out.step + size, out.data + i * out.step + width, 0.0f);
  }

  void operator()(const core::Recall& phase) const {
    const std::int64_t at = run_.layout.place(phase.state).at, begin = piece_.begin * kPanel,
                       end = std::min(piece_.end * kPanel, phase.out.size);
    const MatrixRows out = rows(phase.out);
    for (std::int64_t agent = 0; agent < run_.rows.agents; ++agent) {
      const float* const state = (run_.rows.from != nullptr ? run_.rows.from : run_.rows.states)[agent] + at;
      std::copy(state + begin, state + end, out.data + agent * out.step + begin);
    }
  }

  void operator()(const core::GatedCell& phase) const {
    const std::int64_t frames = run_.rows.frames;
    for (std::int64_t agent = 0; agent < run_.rows.agents; ++agent) {
      CellRows cell = cell_of(phase, run_.at, piece_.first + agent * frames, frames);
      cell.states = state_of(phase.state, agent);
      advance_cell(cell, piece_.begin, piece_.end);
    }
  }

  void operator()(const core::Norm& phase) const {
    normalize({packed_.weights[kWeight], packed_.weights[kBias]}, rows(phase.in), phase.in.size,
              phase.epsilon, piece_.count, rows(phase.out));
  }

  void operator()(const core::Product& phase) const {
    const MatrixRows in = rows(phase.in), out = rows(phase.out);
    multiply(packed_.matrix, in.data, in.step, piece_.count, out,
             phase.adds ? Epilogue::add : Epilogue::store, piece_.begin, piece_.end);
    if (phase.relu) relu(out.data, piece_.count, out.step, piece_.begin, piece_.end);
  }

  void operator()(const core::Convolution& phase) const {
    for (std::int64_t agent = 0; agent < run_.rows.agents; ++agent) {
      Convolution convolution =
          convolution_of(phase, packed_, run_.at, agent * run_.rows.frames, run_.rows.frames);
      convolution.history = state_of(phase.state, agent);
      convolve(convolution, piece_.begin, piece_.end);
    }
  }

  void operator()(const core::Softplus& phase) const {
    const MatrixRows out = rows(phase.out);
    if (rows(phase.in).data != out.data) copy(phase.in, phase.out);
    activate_dt(out.data, packed_.weights[kBias], {phase.lowest, phase.highest}, piece_.count, out.step,
                piece_.begin, piece_.end);
  }

  void operator()(const core::Mean& phase) const {
    const MatrixRows in = rows(phase.in), out = rows(phase.out);
    for (std::int64_t i = 0; i < piece_.count; ++i) {
      out.data[i * out.step] = mean_of(in.data + i * in.step, phase.in.size);
    }
  }

  void operator()(const core::SelectiveScan& phase) const {
    for (std::int64_t agent = 0; agent < run_.rows.agents; ++agent) {
      float* const state = state_of(phase.state, agent);
      if (run_.unused > 0) scan(phase, state, agent, 0, run_.unused, false);
      if (run_.unused < run_.rows.frames) scan(phase, state, agent, run_.unused, run_.rows.frames, true);
    }
  }

 private:
  MatrixRows rows(const core::Span& span) const { return rows_at(run_.at, span, piece_.first); }

  // Padding stays zero.
  void copy(const core::Span& in, const core::Span& out) const {
    copy_rows(rows(in), rows(out), piece_.count, piece_.begin * kPanel,
              std::min(piece_.end * kPanel, out.size));
  }

  void add(const core::Span& in, const core::Span& out) const {
    MatrixRows from = rows(in), to = rows(out);
    const std::int64_t begin = piece_.begin * kPanel, end = std::min(piece_.end * kPanel, out.size);
    for (std::int64_t row = 0; row < piece_.count; ++row, from.data += from.step, to.data += to.step) {
      for (std::int64_t i = begin; i < end; ++i) to.data[i] += from.data[i];
    }
  }

  // An agent's part of a state. One that is not advanced in place is copied first, part by part where each
  // part is about to be used.
  float* state_of(core::StateId id, std::int64_t agent) const {
    const PanelPlace& place = run_.layout.place(id);
    float* const state = run_.rows.states[agent];
    if (run_.rows.from != nullptr && run_.rows.from[agent] != state) {
      place.copy(run_.rows.from[agent], state, piece_.begin, piece_.end);
    }
    return state + place.at;
  }

  // Steps [from, to) of one agent.
  void scan(const core::SelectiveScan& phase, float* state, std::int64_t agent, std::int64_t from,
            std::int64_t to, bool with_output) const {
    const std::int64_t first = agent * run_.rows.frames + from;
    ScanSequence sequence = scan_of(phase, packed_, run_.at, first, to - from, run_.rows.length);
    if (!with_output) sequence.y = nullptr, sequence.z.data = nullptr;
    sequence.h_panels = state;
    scan_channels(packed_.rule, sequence, piece_.begin, piece_.end, run_.scratch);
  }

  const PackedPhase& packed_;
  const PhaseRun& run_;
  const Piece& piece_;
};

}  // namespace

RunPhase runner_of(const core::Phase& phase) {
  return std::visit(
      [](const auto& of_kind) -> RunPhase {
        using Kind = std::decay_t<decltype(of_kind)>;
        return
            [](const core::Phase& each, const PackedPhase& packed, const PhaseRun& run, const Piece& piece) {
              const auto* const found = std::get_if<Kind>(&each);
              if (found == nullptr) __builtin_unreachable();
              Runner(packed, run, piece)(*found);
            };
      },
      phase);
}

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
