#include "cuda/policy/lower_heads.hpp"

#include <algorithm>
#include <variant>

namespace exphil::cuda {

using core::kNone;
using core::Span;
using policy::Activation;

void HeadLowering::add(const core::HeadRecurrence& p) {
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

// The coefficients are found where the heads use them. A layer has such heads once.
void HeadLowering::trapezoid(const core::HeadRecurrence& p, LoweredPhase* phase, policy::Heads* made) {
  const core::Trapezoid* rule = nullptr;
  for (const core::Phase& other : *block_) {
    const auto* const found = std::get_if<core::Trapezoid>(&other);
    if (found != nullptr && found->out.vector == p.decay.vector) rule = found;
  }
  const std::int64_t heads = p.heads(), at = rule != nullptr ? rule->out.first : 0;
  const auto is_part = [&](const Span& span, std::int64_t number) {
    return span == Span{p.decay.vector, at + number * heads, heads};
  };
  if (rule == nullptr || !is_part(p.rate_before, 0) || !is_part(p.rate, 1) || !is_part(p.decay, 2)) {
    cannot_lower("the coefficients of its heads are not those of one trapezoidal rule");
  }
  if (phase->phase.index != 0 || p.groups != heads) cannot_lower("heads with rotated keys share them");
  made->rule = p.rule, made->floor = bits_of(rule->floor);
  made->rate = vectors_.of(rule->dt), made->a = vectors_.of(rule->a), made->mix = vectors_.of(rule->mix);
  made->value_before = vectors_.of(p.value_before), made->key_before = vectors_.of(p.key_before);
  made->ranks = static_cast<int>(p.ranks), made->ranked = p.scale != kNone;
  if (p.ranks > 1 && !made->ranked) cannot_lower("the ranks of its heads have the same values");
  if (made->ranked) phase->scales = {p.scale};
}

// Those of a gate belong to its phase, or to that of the heads.
const core::RankScale& HeadLowering::take(const GateRanks& ranks) {
  if (readers(ranks.gates->out) != 1) cannot_lower("what gates its ranks has another reader");
  taken_.push_back(ranks.gates), taken_.push_back(ranks.sum);
  return *ranks.gates;
}

void HeadLowering::add(const core::RankScale& p) {
  const bool taken = std::find(taken_.begin(), taken_.end(), &p) != taken_.end();
  const auto* const gate = p.back ? nullptr : reader_of_gates(p.out);
  if (!taken && (gate == nullptr || !ranks_of(*block_, *gate))) cannot_lower("it has ranks without a gate");
}

const core::Gate* HeadLowering::reader_of_gates(const Span& span) const {
  for (const core::Phase& phase : *block_) {
    const auto* const gate = std::get_if<core::Gate>(&phase);
    if (gate != nullptr && gate->gate == span) return gate;
  }
  return nullptr;
}

void HeadLowering::add(const core::Angle& p) {
  require_zeros(p.state);
  LoweredPhase& phase = push(policy::Kind::angle);
  phase.state = p.state;
  to_->angles[phase.phase.index] = {vectors_.of(p.rate), vectors_.of(p.dt), vectors_.of(p.out),
                                    static_cast<int>(p.heads())};
}

void HeadLowering::add(const core::Rotation& p) {
  const auto* const norm = writer_of<core::Norm>(*block_, p.in);
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

void HeadLowering::add(const core::Delay& p) {
  require_zeros(p.state);
  LoweredPhase& phase = push(policy::Kind::delay);
  phase.state = p.state;
  to_->delays[phase.phase.index] = {vectors_.of(p.in), vectors_.of(p.out)};
}

// silu(z): the product that writes z activates it.
int HeadLowering::gate_vector(const core::Gate& gate) {
  output_of(gate.gate, "a gate").activation = Activation::silu;
  return vectors_.of(gate.gate);
}

// The kernels begin a window with zeros in all states but those of cells.
void HeadLowering::require_zeros(core::StateId state) const {
  if (config_.network.state(state).initial.empty()) return;
  cannot_lower("a new agent's state is not zeros where no cell has it");
}

}  // namespace exphil::cuda
