#include "cuda/policy/lower_heads.hpp"

#include <variant>

namespace exphil::cuda {

using core::kNone;
using core::Span;

void HeadLowering::delta(const core::HeadRecurrence& p, policy::Heads* made) {
  const auto* const mean = whole_writer_of<core::Mean>(*block_, p.decay);
  if (mean == nullptr || heads_of(*block_, *mean) != &p || p.a != kNone || p.rate.size != p.value.size) {
    cannot_lower("its heads with the delta rule have no rate for each channel, or a decay that is no mean");
  }
  made->rule = p.rule, made->rate = vectors_.of(p.rate), made->decays = vectors_.of(mean->in);
}

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

const core::RankScale& HeadLowering::take(const GateRanks& ranks) {
  if (readers(ranks.gates->out) != 1) cannot_lower("what gates its ranks has another reader");
  taken_.push_back(ranks.gates), taken_.push_back(ranks.sum);
  return *ranks.gates;
}

const core::Gate* HeadLowering::reader_of_gates(const Span& span) const {
  for (const core::Phase& phase : *block_) {
    const auto* const gate = std::get_if<core::Gate>(&phase);
    if (gate != nullptr && gate->gate == span) return gate;
  }
  return nullptr;
}

}  // namespace exphil::cuda
