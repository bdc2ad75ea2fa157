#include "cuda/policy/lower.hpp"

#include <algorithm>
#include <variant>

#include "core/error.hpp"
#include "cuda/policy/lower_block.hpp"

namespace exphil::cuda {
namespace {

using core::kNone;

constexpr std::int64_t kMostLayers = 256;

policy::Stored stored_of(core::Precision precision) {
  return precision == core::Precision::f32      ? policy::Stored::f32
         : precision == core::Precision::bf16   ? policy::Stored::bf16
         : precision == core::Precision::f16    ? policy::Stored::f16
         : precision == core::Precision::tf32x3 ? policy::Stored::tf32x3
                                                : policy::Stored::int8;
}

policy::States states_of(core::Precision states) {
  return states == core::Precision::f16    ? policy::States::f16
         : states == core::Precision::bf16 ? policy::States::bf16
                                           : policy::States::f32;
}

void list(const LoweredBlock& lowered, policy::Block* to) {
  for (const LoweredPhase& phase : lowered) to->phases[to->count++] = phase.phase;
}

// A layer's states lie in the order of the network's.
void place_states(const LoweredBlock& layer, policy::Network* to) {
  std::vector<const LoweredPhase*> phases;
  for (const LoweredPhase& phase : layer) {
    if (phase.state != kNone) phases.push_back(&phase);
  }
  std::stable_sort(phases.begin(), phases.end(),
                   [](const LoweredPhase* p, const LoweredPhase* q) { return p->state < q->state; });
  const auto place = [to](int* at, int floats) { *at = to->layer_floats, to->layer_floats += floats; };
  for (const LoweredPhase* phase : phases) {
    policy::Convolution& convolution = to->convolutions[phase->phase.index];
    policy::Scan& scan = to->scans[phase->phase.index];
    policy::GatedCell& cell = to->cells[phase->phase.index];
    if (phase->phase.kind == policy::Kind::convolution) {
      place(&convolution.state_at, (convolution.taps - 1) * to->size(convolution.in));
    } else if (phase->phase.kind == policy::Kind::cell) {
      place(&cell.state_at, formulas::states_of(cell.cell) * to->size(cell.x[0]));
    } else if (phase->phase.kind == policy::Kind::heads) {
      policy::Heads& heads = to->heads[phase->phase.index];
      place(&heads.state_at,
            to->state_words(to->size(heads.value) * policy::Lanes(policy::keys_of(*to, heads)).size()));
    } else if (phase->phase.kind == policy::Kind::angle) {
      policy::Angle& angle = to->angles[phase->phase.index];
      place(&angle.state_at, policy::round_up(angle.heads * to->values(angle.rate), 4));
    } else if (phase->phase.kind == policy::Kind::delay) {
      policy::Delay& delay = to->delays[phase->phase.index];
      place(&delay.state_at, to->size(delay.in));
    } else {
      place(&scan.state_at, to->state_words(to->size(scan.x) * to->size(scan.b)));
    }
  }
}

// The phases of all layers have the same numbers: before the second one and later ones, what the first one
// has made is made anew, but for whether some layer has a bias.
std::vector<LoweredBlock> lower_layers(const core::PolicyConfig& config, LoweredVectors& vectors,
                                       policy::Network* to, PhaseCounts& counts) {
  std::vector<LoweredBlock> layers;
  const PhaseCounts before = counts;
  policy::Product first[policy::kMostPhases];
  for (const core::Block& layer : config.network.layers) {
    counts = before;
    for (int i = before[0]; i < policy::kMostPhases; ++i) {
      const bool biased = to->products[i].biased;
      to->products[i] = policy::Product();
      to->products[i].biased = biased;
    }
    layers.push_back(lower_block(config, layer, vectors, to, counts));
    if (layers.size() == 1) std::copy(to->products, to->products + policy::kMostPhases, first);
  }
  for (int i = before[0]; i < counts[0]; ++i) {
    const int counted = to->counted(first[i]);
    if (counted != to->counted(to->products[i])) to->products[i].counted_first = counted;
  }
  return layers;
}

// Where the input is a copy of the frame to all of hidden, which the layers replace: a network whose frame is
// hidden, without that copy.
core::PolicyConfig without_copy(core::PolicyConfig config) {
  core::Network& n = config.network;
  const auto* const copy = n.input.size() == 1 ? std::get_if<core::Copy>(&n.input.front()) : nullptr;
  if (copy == nullptr || n.layers.empty() || core::adds(n.layers.front().back())) return config;
  if (!(copy->in == n.all_of(n.frame)) || !(copy->out == n.all_of(n.hidden))) return config;
  n.frame = n.hidden;
  n.input.clear();
  return config;
}

}  // namespace

Lowered lower(const core::PolicyConfig& given) {
  const core::PolicyConfig config = without_copy(given);
  const core::Network& n = config.network;
  require_at_most(config.n_layer(), kMostLayers, "layers");
  if (n.layers.empty()) cannot_lower("it has no layer");
  Lowered made;
  policy::Network& to = made.network;
  to.stored = stored_of(config.precision), to.states = states_of(config.states);
  to.layers = static_cast<int>(config.n_layer());
  LoweredVectors vectors(n, &to);
  vectors.add(n.all_of(n.frame));
  vectors.add(n.all_of(n.hidden));
  vectors.add_all(n.input);
  vectors.add_all(n.layers.front());
  vectors.add_all(n.output);
  to.frame = vectors.of(n.all_of(n.frame)), to.hidden = vectors.of(n.all_of(n.hidden));
  to.outs = vectors.of(n.all_of(n.outs));
  PhaseCounts counts{};
  made.input = lower_block(config, n.input, vectors, &to, counts);
  made.layers = lower_layers(config, vectors, &to, counts);
  made.output = lower_block(config, n.output, vectors, &to, counts);
  for (const LoweredBlock* const block : {&made.input, &made.output}) {
    for (const LoweredPhase& phase : *block) {
      if (phase.state != kNone) cannot_lower("it has a state outside of its layers");
    }
  }
  list(made.input, &to.input), list(made.layers.front(), &to.layer), list(made.output, &to.output);
  place_states(made.layers.front(), &to);
  return made;
}

}  // namespace exphil::cuda
