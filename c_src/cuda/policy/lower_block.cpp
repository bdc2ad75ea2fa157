#include "cuda/policy/lower_block.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "cuda/policy/lower_heads.hpp"

namespace exphil::cuda {
namespace {

using core::kNone;
using core::Span;
using policy::Activation;
using policy::kNoVector;

constexpr std::int64_t kMostStates = 1024, kMostTaps = 16, kMostShort = 1024;

// The phases of the second and later layers are those of the first one, with weights and states of their own.
class BlockLowering : private HeadLowering {
 public:
  using HeadLowering::HeadLowering;

  LoweredBlock run(const core::Block& block) {
    block_ = &block;
    for (const core::Phase& phase : block) {
      std::visit([this](const auto& p) { add(p); }, phase);
    }
    for (const core::Recall* const recall : recalls_) {
      if (recall != nullptr) cannot_lower("it recalls a state of no cell");
    }
    for (LoweredPhase& phase : made_) pass_bias(&phase);
    for (const LoweredPhase& phase : made_) find_bias(phase);
    return std::move(made_);
  }

 private:
  // ---- one function for each kind of core phase ----

  void add(const core::Norm& norm) {
    if (of_products(*block_, norm)) return norms_.push_back(&norm);
    if (only_reader<core::Convolution>(*block_, norm.out) != nullptr && norm.parts == 1)
      return diagonal(norm);
    if (norm.kind != core::NormKind::rms) {
      cannot_lower("it has a LayerNorm that neither a product nor a convolution follows");
    }
    if (gate_of(*block_, norm.out) != nullptr) return gated_norms_.push_back(&norm);
    if (only_reader<core::Rotation>(*block_, norm.out) != nullptr) return;  // the rotation has it
    gate(&norm, nullptr, norm.out);
  }

  void add(const core::Copy& copy) {
    if (std::find(taken_.begin(), taken_.end(), &copy) != taken_.end()) return;
    LoweredPhase& phase = product_of(copy.in, copy.adds);
    product(phase).adds = copy.adds;
    append(&phase, copy.out, kNone, kNone, 0, Activation::none);
    phase.columns = copy.in.size;
  }

  void add(const core::Product& p) {
    LoweredPhase& phase = product_of(p.in, p.adds);
    if (!product(phase).is_short && vectors_.is_part(p.in) && norm_to(p.in) == nullptr) {
      require_at_most(p.in.size, kMostShort, "values of a part of a vector (" + vectors_.name(p.in) + ")");
      product(phase).is_short = true;
      vectors_.set_size(product(phase).in, policy::round_up(static_cast<int>(p.in.size), 4));
    }
    product(phase).adds = p.adds;
    append(&phase, p.out, p.weight, p.bias, p.first_row, p.relu ? Activation::relu : Activation::none);
  }

  void add(const core::Convolution& p) {
    require_at_most(p.taps, kMostTaps, "taps of a convolution");
    require_zeros(p.state);
    for (const int out : vectors_.parts_of(p.out)) {
      const std::int64_t first = vectors_.span_of(out).first - p.out.first;
      const Span in = {p.in.vector, p.in.first + first, vectors_.span_of(out).size};
      output_of(in, "a convolution of what");
      LoweredPhase& phase = push(policy::Kind::convolution);
      phase.matrix = p.weight, phase.vector = p.bias, phase.state = p.state, phase.first_channel = first;
      policy::Convolution& made = to_->convolutions[phase.phase.index];
      made.in = vectors_.of(in), made.out = out, made.taps = static_cast<int>(p.taps);
    }
  }

  // The product that writes its input writes its output instead.
  void add(const core::Softplus& p) { activate(p.in, p.out, p.bias, p.lowest, p.highest); }

  void add(const core::Mean& p) {
    if (heads_of(*block_, p) != nullptr) return;  // the heads have it
    if (p.out.size != 1) cannot_lower("it has means of parts of a vector");
    policy::Mean& made = to_->means[push(policy::Kind::mean).phase.index];
    made.in = vectors_.of(p.in), made.out = vectors_.of(p.out);
    vectors_.set_size(made.out, 1);
  }

  void add(const core::SelectiveScan& p) {
    require_at_most(p.b.size, kMostStates, "states of a channel (d_state)");
    if (p.activates) activate(p.dt, p.dt, p.dt_bias, p.lowest, p.highest);
    output_of(p.z, "a gate").activation = Activation::silu;
    LoweredPhase& phase = push(policy::Kind::scan);
    phase.matrix = p.a, phase.vector = p.d, phase.state = p.state;
    require_zeros(p.state);
    policy::Scan& made = to_->scans[phase.phase.index];
    made.x = vectors_.of(p.x), made.dt = vectors_.of(p.dt), made.z = vectors_.of(p.z);
    made.b = vectors_.of(p.b), made.c = vectors_.of(p.c), made.out = vectors_.of(p.out);
    made.input_dt = p.input_dt ? vectors_.of(p.input_dt) : kNoVector;
    for (const int vector : {made.b, made.c}) {
      vectors_.set_size(vector, policy::Lanes(static_cast<int>(p.b.size)).size());
    }
    made.decays_input = p.chunk_size > 1;
    made.carried_decays_input = core::decays_input(p, config_.window);
  }

  void add(const core::HeadRecurrence& p) {
    require_at_most(p.keys(), kMostStates, "keys of a head (d_state)");
    require_zeros(p.state);
    const core::Gate* const gate = gate_of(config_.network, *block_, p);
    LoweredPhase& phase = push(policy::Kind::heads);
    phase.matrix = p.a, phase.vector = p.d, phase.state = p.state;
    policy::Heads& made = to_->heads[phase.phase.index];
    made = policy::Heads();
    made.value = vectors_.of(p.value);
    made.key = vectors_.of(p.key), made.query = vectors_.of(p.query);
    made.heads = static_cast<int>(p.heads()), made.groups = static_cast<int>(p.groups);
    if (p.rule == formulas::HeadRule::trapezoid) {
      trapezoid(p, &phase, &made);
    } else if (p.rule == formulas::HeadRule::delta) {
      delta(p, &made);
    } else {
      if (p.a == kNone || !(p.rate == p.decay)) cannot_lower("the decay of its heads is not exp(A dt)");
      made.rate = vectors_.of(p.rate);
    }
    const GateRanks ranks = gate != nullptr ? ranks_of(*block_, *gate) : GateRanks();
    if (made.ranked && gate != nullptr && !ranks) cannot_lower("ranks of its heads are gated as one");
    made.out = vectors_.of(gate == nullptr ? p.out : ranks ? ranks.sum->out : gate->out);
    if (gate == nullptr) return;
    taken_.push_back(gate);
    if (!ranks) {
      made.z = gate_vector(*gate);
    } else {
      made.z = vectors_.of(take(ranks).in);
      phase.scales.insert(phase.scales.end(), {ranks.gates->weight, ranks.sum->weight});
    }
  }

  void add(const core::Trapezoid&) {}

  void add(const core::RankScale& p) {
    const bool taken = std::find(taken_.begin(), taken_.end(), &p) != taken_.end();
    const auto* const gate = p.back ? nullptr : reader_of_gates(p.out);
    if (!taken && (gate == nullptr || !ranks_of(*block_, *gate))) cannot_lower("it has ranks without a gate");
  }
  void add(const core::Angle& p) {
    require_zeros(p.state);
    LoweredPhase& phase = push(policy::Kind::angle);
    phase.state = p.state;
    to_->angles[phase.phase.index] = {vectors_.of(p.rate), vectors_.of(p.dt), vectors_.of(p.out),
                                      static_cast<int>(p.heads())};
  }

  void add(const core::Rotation& p) {
    const auto* const norm = whole_writer_of<core::Norm>(*block_, p.in);
    const std::int64_t parts = p.ranks * p.groups;
    if (norm == nullptr || norm->kind != core::NormKind::rms || norm->parts != parts ||
        norm->repeats != parts || p.bias == kNone) {
      cannot_lower("it rotates what is not normalised by its ranks and groups, with a bias");
    }
    LoweredPhase& phase = push(policy::Kind::rotation);
    phase.matrix = p.bias, phase.vector = norm->weight;
    to_->rotations[phase.phase.index] = {
        vectors_.of(norm->in),      vectors_.of(p.turn),       vectors_.of(p.out), static_cast<int>(p.heads),
        static_cast<int>(p.groups), static_cast<int>(p.ranks), p.halves,           bits_of(norm->epsilon)};
  }

  void add(const core::Delay& p) {
    require_zeros(p.state);
    LoweredPhase& phase = push(policy::Kind::delay);
    phase.state = p.state;
    to_->delays[phase.phase.index] = {vectors_.of(p.in), vectors_.of(p.out)};
  }

  void add(const core::Gate& p) {
    if (std::find(taken_.begin(), taken_.end(), &p) != taken_.end()) return;
    const auto before = [&](const core::Norm* norm) { return norm->out == p.in; };
    const auto norm = std::find_if(gated_norms_.begin(), gated_norms_.end(), before);
    gate(norm == gated_norms_.end() ? nullptr : *norm, &p, p.out);
  }

  // One of them, or both: the norm is gated.
  void gate(const core::Norm* norm, const core::Gate* gate, const Span& out) {
    LoweredPhase& phase = push(policy::Kind::gate);
    policy::Gate& made = to_->gates[phase.phase.index];
    made = policy::Gate();
    made.in = vectors_.of(norm != nullptr ? norm->in : gate->in);
    const GateRanks ranks = gate != nullptr ? ranks_of(*block_, *gate) : GateRanks();
    if (ranks) {
      made.gate = vectors_.of(take(ranks).in), made.ranks = static_cast<int>(ranks.gates->ranks);
      phase.scales = {ranks.gates->weight, ranks.sum->weight};
    } else if (gate != nullptr) {
      made.gate = gate_vector(*gate);
    }
    const LoweredVectors::Place place = vectors_.place_of(ranks ? ranks.sum->out : out);
    made.out = place.vector, made.at = static_cast<int>(place.at);
    if (norm == nullptr) return;
    made.parts = static_cast<int>(norm->parts), made.epsilon = bits_of(norm->epsilon);
    phase.vector = norm->weight;
  }

  // silu(z): the product that writes z activates it.
  int gate_vector(const core::Gate& gate) {
    output_of(gate.gate, "a gate").activation = Activation::silu;
    return vectors_.of(gate.gate);
  }

  // The product that writes its input applies it.
  void add(const core::Sigmoid& p) { output_of(p.in, "a sigmoid").activation = Activation::sigmoid; }

  // Its vector is the cell's.
  void add(const core::Recall& p) { recalls_.push_back(&p); }

  void add(const core::GatedCell& p) {
    LoweredPhase& phase = push(policy::Kind::cell);
    phase.state = p.state;
    policy::GatedCell& made = to_->cells[phase.phase.index];
    made = policy::GatedCell();
    made.cell = p.cell;
    for (int gate = 0; gate < formulas::gates_of(p.cell); ++gate) {
      made.x[gate] = vectors_.of(p.x[gate]);
      if (formulas::recurrent(p.cell)) made.h[gate] = vectors_.of(p.h[gate]);
    }
    made.before = recalled(p);
    const core::Copy* const copy = copy_of(*block_, p, config_.network.hidden);
    made.out = vectors_.of(copy != nullptr ? copy->out : p.out);
    if (copy == nullptr) return;
    made.adds = copy->adds;
    taken_.push_back(copy);
  }

  // The vector of a cell's state before the frame; kNoVector where nothing recalls it.
  int recalled(const core::GatedCell& cell) {
    int found = kNoVector;
    for (const core::Recall*& recall : recalls_) {
      if (recall == nullptr || recall->state != cell.state) continue;
      const bool first = recall->out.size == cell.out.size && !vectors_.is_part(recall->out);
      if (!first || found != kNoVector)
        cannot_lower("it recalls other values of a cell's state than its first");
      found = vectors_.of(recall->out);
      recall = nullptr;
    }
    return found;
  }

  // The kernels begin a window with zeros in all states but those of cells.
  void require_zeros(core::StateId state) const {
    if (config_.network.state(state).initial.empty()) return;
    cannot_lower("a new agent's state is not zeros where no cell has it");
  }

  std::vector<const core::Recall*> recalls_;    // null: a cell has it
  std::vector<const core::Norm*> gated_norms_;  // the gates behind them have them
};

}  // namespace

LoweredBlock lower_block(const core::PolicyConfig& config, const core::Block& block, LoweredVectors& vectors,
                         policy::Network* to, PhaseCounts& counts) {
  return BlockLowering(config, vectors, to, counts.data()).run(block);
}

}  // namespace exphil::cuda
