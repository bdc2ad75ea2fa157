#include "host/policy/phases.hpp"

#include <variant>

#include "host/policy/phase_access.hpp"

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
    const std::int64_t begin = piece_.begin * kPanel, end = std::min(piece_.end * kPanel, phase.out.size);
    const MatrixRows out = rows(phase.out);
    for (std::int64_t agent = 0; agent < run_.rows.agents; ++agent) {
      const float* const state = read_at(phase.state, agent);
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
    normalize({packed_.weights[kWeight], packed_.weights[kBias], norm_parts(phase), phase.repeats},
              rows(phase.in), phase.in.size, phase.epsilon, piece_.count, rows(phase.out));
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
      if (agent + 1 < run_.rows.agents) convolution.ahead = read_at(phase.state, agent + 1);
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
    const std::int64_t size = phase.in.size / phase.out.size;
    for (std::int64_t i = 0; i < piece_.count; ++i) {
      for (std::int64_t part = 0; part < phase.out.size; ++part) {
        out.data[i * out.step + part] = mean_of(in.data + i * in.step + part * size, size);
      }
    }
  }

  void operator()(const core::Sigmoid& phase) const {
    sigmoid(rows(phase.in), rows(phase.out), piece_.count, first_value(), end_value(phase.out));
  }

  void operator()(const core::Gate& phase) const {
    gate(rows(phase.in), rows(phase.gate), rows(phase.out), piece_.count, first_value(),
         end_value(phase.out));
  }

  void operator()(const core::HeadRecurrence& phase) const {
    const std::int64_t begin = first_value(), end = end_value(phase.value),
                       skipped = begin * run_.layout.place(phase.state).column();
    each_agent(phase.state, [&](const float* from, float* state, std::int64_t first, std::int64_t frames) {
      HeadRows heads = heads_of(phase, packed_, run_.at, first, frames);
      heads.states = state + skipped, heads.from = from + skipped;
      heads.unanswered = run_.unused;
      advance_heads(heads, begin, end);
    });
  }

  void operator()(const core::Delay& phase) const {
    const std::int64_t begin = first_value(), end = end_value(phase.out);
    each_agent(phase.state, [&](const float* from, float* state, std::int64_t first, std::int64_t frames) {
      const MatrixRows in = rows_at(run_.at, phase.in, first), out = rows_at(run_.at, phase.out, first);
      std::copy(from + begin, from + end, out.data + begin);
      copy_rows(in, {out.data + out.step, out.step}, frames - 1, begin, end);
      copy_rows({in.data + (frames - 1) * in.step, 0}, {state, 0}, 1, begin, end);
    });
  }

  // Two outputs for each angle.
  void operator()(const core::Angle& phase) const {
    each_agent(phase.state, [&](const float* from, float* state, std::int64_t first, std::int64_t frames) {
      advance_angles({phase.angles(), rows_at(run_.at, phase.rate, first), rows_at(run_.at, phase.dt, first),
                      rows_at(run_.at, phase.out, first), from, state, frames},
                     first_value() / 2, end_value(phase.out) / 2);
    });
  }

  void operator()(const core::Rotation& phase) const {
    rotate(phase, {rows(phase.in), rows(phase.turn), rows(phase.out), packed_.weights[kWeight]}, piece_.count,
           first_value(), end_value(phase.out));
  }

  void operator()(const core::Trapezoid& phase) const {
    trapezoid_coefficients(phase.dt.size, phase.floor,
                           {rows(phase.dt), rows(phase.a), rows(phase.mix), rows(phase.out)}, piece_.count);
  }

  void operator()(const core::RankScale& phase) const {
    scale_ranks(phase, packed_.weights[kWeight], rows(phase.in), rows(phase.out), piece_.count, first_value(),
                end_value(phase.out));
  }

  void operator()(const core::SelectiveScan& phase) const {
    if (run_.rows.frames == 1 && run_.rows.agents > 1) return scan_agents(phase);
    for (std::int64_t agent = 0; agent < run_.rows.agents; ++agent) {
      float* const state = state_of(phase.state, agent);
      if (run_.unused > 0) scan(phase, state, agent, 0, run_.unused, false);
      if (run_.unused < run_.rows.frames) scan(phase, state, agent, run_.unused, run_.rows.frames, true);
    }
  }

 private:
  MatrixRows rows(const core::Span& span) const { return rows_at(run_.at, span, piece_.first); }
  // The piece in values.
  std::int64_t first_value() const { return piece_.begin * kPanel; }
  std::int64_t end_value(const core::Span& span) const { return std::min(piece_.end * kPanel, span.size); }

  // Where an agent's part of a state is read.
  const float* read_at(core::StateId id, std::int64_t agent) const {
    return sources()[agent] + run_.layout.place(id).at;
  }
  float* const* sources() const { return run_.rows.from != nullptr ? run_.rows.from : run_.rows.states; }

  // body(where a part is read, where it is advanced, the agent's first row, its rows). A state that is not
  // advanced in place is read where it is.
  template <class Body>
  void each_agent(core::StateId id, const Body& body) const {
    const std::int64_t at = run_.layout.place(id).at, frames = run_.rows.frames;
    for (std::int64_t agent = 0; agent < run_.rows.agents; ++agent) {
      body(read_at(id, agent), run_.rows.states[agent] + at, piece_.first + agent * frames, frames);
    }
  }

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
    if (sources()[agent] != state) place.copy(sources()[agent], state, piece_.begin, piece_.end);
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

  // One step of each agent.
  void scan_agents(const core::SelectiveScan& phase) const {
    const PassRows& rows = run_.rows;
    ScanSequence sequence = scan_of(phase, packed_, run_.at, 0, rows.agents, rows.length);
    sequence.agents = rows.states, sequence.agents_from = sources();
    sequence.agent_at = run_.layout.place(phase.state).at;
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

}  // namespace exphil::host
