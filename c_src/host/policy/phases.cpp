#include "host/policy/phases.hpp"

#include <algorithm>
#include <variant>

#include "host/policy/layer_kernels.hpp"

namespace exphil::host {

namespace {

class Runner {
 public:
  Runner(const PackedPhase& packed, const PhaseRun& run, const Piece& piece)
      : packed_(packed), run_(run), piece_(piece) {}

  void operator()(const core::Copy& phase) const {
    const MatrixRows in = rows_of(phase.in), out = rows_of(phase.out);
    copy_panels(in, out, phase.out.size);
  }

  void operator()(const core::Norm& phase) const {
    normalize(packed_.norm, rows_of(phase.in).data, phase.in.size, phase.epsilon, piece_.count,
              rows_of(phase.out).data);
  }

  void operator()(const core::Product& phase) const {
    const MatrixRows in = rows_of(phase.in), out = rows_of(phase.out);
    multiply(packed_.matrix, in.data, in.step, piece_.count, out,
             phase.adds ? Epilogue::add : Epilogue::store, piece_.begin, piece_.end);
    if (phase.relu) relu(out.data, piece_.count, out.step, piece_.begin, piece_.end);
  }

  void operator()(const core::Convolution& phase) const {
    Convolution convolution;
    convolution.taps = phase.taps;
    convolution.step = row(phase.out, 0).step;
    convolution.weights = packed_.taps;
    convolution.bias = packed_.bias;
    convolution.seq = run_.rows.frames;
    for (std::int64_t agent = 0; agent < run_.rows.agents; ++agent) {
      convolution.history = state_of(phase.state, agent);
      convolution.x = row(phase.in, agent * run_.rows.frames).data;
      convolution.out = row(phase.out, agent * run_.rows.frames).data;
      convolve(convolution, piece_.begin, piece_.end);
    }
  }

  void operator()(const core::Softplus& phase) const {
    const MatrixRows in = rows_of(phase.in), out = rows_of(phase.out);
    if (in.data != out.data) copy_panels(in, out, phase.out.size);
    activate_dt(out.data, packed_.bias, {phase.lowest, phase.highest}, piece_.count, out.step, piece_.begin,
                piece_.end);
  }

  void operator()(const core::Mean& phase) const {
    const MatrixRows in = rows_of(phase.in), out = rows_of(phase.out);
    for (std::int64_t i = 0; i < piece_.count; ++i) {
      out.data[i * out.step] = mean_of(in.data + i * in.step, phase.in.size);
    }
  }

  void operator()(const core::SelectiveScan& phase) const {
    for (std::int64_t agent = 0; agent < run_.rows.agents; ++agent) {
      float* const state = state_of(phase.state, agent);
      scan(phase, state, agent, 0, run_.unused, false);
      scan(phase, state, agent, run_.unused, run_.rows.frames, true);
    }
  }

 private:
  MatrixRows row(const core::Span& span, std::int64_t index) const {
    const MatrixRows& rows = run_.at[span.vector];
    return {rows.data + index * rows.step + span.first, rows.step};
  }
  MatrixRows rows_of(const core::Span& span) const { return row(span, piece_.first); }

  // Padding stays zero.
  void copy_panels(const MatrixRows& in, const MatrixRows& out, std::int64_t size) const {
    const std::int64_t begin = piece_.begin * kPanel, end = std::min(piece_.end * kPanel, size);
    for (std::int64_t i = 0; i < piece_.count; ++i) {
      std::copy(in.data + i * in.step + begin, in.data + i * in.step + end, out.data + i * out.step + begin);
    }
  }

  // An agent's part of a state. One that is not advanced in place is copied first, part by part where each
  // part is about to be used.
  float* state_of(core::StateId id, std::int64_t agent) const {
    const StatePlace& place = run_.layout.place(id);
    float* const state = run_.rows.states[agent];
    if (run_.rows.from != nullptr && run_.rows.from[agent] != state) {
      place.copy(run_.rows.from[agent], state, piece_.begin, piece_.end);
    }
    return state + place.at;
  }

  // Steps [from, to) of one agent.
  void scan(const core::SelectiveScan& phase, float* state, std::int64_t agent, std::int64_t from,
            std::int64_t to, bool with_output) const {
    if (from == to) return;
    const std::int64_t first = agent * run_.rows.frames + from;
    const auto strided = [&](const core::Span& span) {
      const MatrixRows rows = row(span, first);
      return Rows{rows.data, rows.step};
    };
    ScanSequence sequence;
    sequence.seq = to - from;
    sequence.x = strided(phase.x);
    sequence.dt = strided(phase.dt);
    if (with_output) {
      const MatrixRows out = row(phase.out, first);
      sequence.z = strided(phase.z);
      sequence.y = out.data;
      sequence.y_step = out.step;
    }
    sequence.b = {row(phase.b, first).data, row(phase.b, first).step, 1, false};
    sequence.c = {row(phase.c, first).data, row(phase.c, first).step, 1, false};
    sequence.a_bounds = packed_.a_bounds;
    sequence.a_panels = packed_.a;
    sequence.d = packed_.d;
    sequence.dt_bias = packed_.bias;
    if (phase.input_dt) sequence.input_dt = row(phase.input_dt, first).data;
    sequence.decays_input = core::decays_input(phase, run_.rows.length);
    sequence.h_panels = state;
    scan_channels(packed_.rule, sequence, piece_.begin, piece_.end, run_.scratch);
  }

  const PackedPhase& packed_;
  const PhaseRun& run_;
  const Piece& piece_;
};

}  // namespace

void run_phase(const core::Phase& phase, const PackedPhase& packed, const PhaseRun& run, const Piece& piece) {
  std::visit(Runner(packed, run, piece), phase);
}

}  // namespace exphil::host
