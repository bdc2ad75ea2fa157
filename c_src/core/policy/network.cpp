#include "core/policy/network.hpp"

#include <algorithm>
#include <cstddef>

#include "core/policy/match.hpp"

namespace exphil::core {

namespace {

void keep_present(std::vector<Span>* spans) {
  spans->erase(std::remove_if(spans->begin(), spans->end(), [](const Span& s) { return !s; }), spans->end());
}

// What a phase with a state reads that changes its output alone: a scan's C and z, a query.
std::vector<Span> output_alone(const Phase& phase) {
  return match(
      phase,
      [](const SelectiveScan& p) {
        return std::vector<Span>{p.c, p.z};
      },
      [](const HeadRecurrence& p) { return std::vector<Span>{p.query}; },
      [](const auto&) { return std::vector<Span>{}; });
}

// Whether `phase` reads any of the spans.
bool reads_any(const Phase& phase, const std::vector<Span>& spans) {
  for (const Span& span : reads(phase)) {
    if (std::any_of(spans.begin(), spans.end(), [&](const Span& s) { return overlap(s, span); })) return true;
  }
  return false;
}

}  // namespace

std::int64_t Network::state_floats() const {
  return state_at(static_cast<StateId>(states.size()));
}

std::int64_t Network::state_at(StateId id) const {
  std::int64_t floats = 0;
  for (StateId i = 0; i < id; ++i) floats += state(i).size();
  return floats;
}

std::vector<Span> reads(const Phase& phase) {
  std::vector<Span> all = match(
      phase, [](const SelectiveScan& p) { return std::vector<Span>{p.x, p.dt, p.input_dt, p.b, p.c, p.z}; },
      [](const GatedCell& p) {
        std::vector<Span> all(p.x.begin(), p.x.end());
        all.insert(all.end(), p.h.begin(), p.h.end());
        return all;
      },
      [](const HeadRecurrence& p) {
        return std::vector<Span>{p.value, p.key,          p.query,      p.rate,
                                 p.decay, p.value_before, p.key_before, p.rate_before};
      },
      [](const Angle& p) {
        return std::vector<Span>{p.rate, p.dt};
      },
      [](const Rotation& p) {
        return std::vector<Span>{p.in, p.turn};
      },
      [](const Trapezoid& p) {
        return std::vector<Span>{p.dt, p.a, p.mix};
      },
      [](const Gate& p) {
        return std::vector<Span>{p.in, p.gate};
      },
      [](const Recall&) { return std::vector<Span>{}; },
      [](const auto& p) { return std::vector<Span>{p.in}; });
  if (adds(phase)) all.push_back(writes(phase));
  keep_present(&all);
  return all;
}

Span writes(const Phase& phase) {
  return std::visit([](const auto& p) { return p.out; }, phase);
}

bool adds(const Phase& phase) {
  return match(
      phase, [](const Product& p) { return p.adds; }, [](const Copy& p) { return p.adds; },
      [](const auto&) { return false; });
}

StateId state_of(const Phase& phase) {
  return match(
      phase, [](const Convolution& p) { return p.state; }, [](const SelectiveScan& p) { return p.state; },
      [](const GatedCell& p) { return p.state; }, [](const HeadRecurrence& p) { return p.state; },
      [](const Delay& p) { return p.state; }, [](const Angle& p) { return p.state; },
      [](const auto&) { return kNone; });
}

StateId recalled_by(const Phase& phase) {
  const auto* const recall = std::get_if<Recall>(&phase);
  return recall == nullptr ? kNone : recall->state;
}

std::vector<WeightId> weights_of(const Phase& phase) {
  std::vector<WeightId> all = match(
      phase,
      [](const Norm& p) {
        return std::vector<WeightId>{p.weight, p.bias};
      },
      [](const Product& p) {
        return std::vector<WeightId>{p.weight, p.bias};
      },
      [](const Convolution& p) {
        return std::vector<WeightId>{p.weight, p.bias};
      },
      [](const Softplus& p) { return std::vector<WeightId>{p.bias}; },
      [](const SelectiveScan& p) {
        return std::vector<WeightId>{p.a, p.d, p.dt_bias};
      },
      [](const HeadRecurrence& p) {
        return std::vector<WeightId>{p.a, p.d, p.scale};
      },
      [](const Rotation& p) { return std::vector<WeightId>{p.bias}; },
      [](const RankScale& p) { return std::vector<WeightId>{p.weight}; },
      [](const auto&) { return std::vector<WeightId>{}; });
  all.erase(std::remove(all.begin(), all.end(), kNone), all.end());
  return all;
}

std::vector<bool> frame_only(const Network& network) {
  if (network.layers.empty()) return {};
  const Block& layer = network.layers.front();
  std::vector<bool> alone(layer.size(), true);
  const auto depends = [&](std::size_t i) {
    if (state_of(layer[i]) != kNone || recalled_by(layer[i]) != kNone) return true;
    for (std::size_t other = 0; other < layer.size(); ++other) {
      if (alone[other]) continue;
      const Span written = writes(layer[other]);
      // Windows that share a frame would write the rest of the vector that is kept of it.
      if (written.vector == writes(layer[i]).vector) return true;
      if (other < i && reads_any(layer[i], {written})) return true;
    }
    return false;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < layer.size(); ++i) {
      if (!alone[i] || !depends(i)) continue;
      alone[i] = false, changed = true;
    }
  }
  return alone;
}

std::vector<Span> kept_of_frame(const Network& network) {
  const std::vector<bool> alone = frame_only(network);
  Span hidden{network.hidden, 0, 0};
  for (const Phase& phase : network.input) {
    const Span out = writes(phase);
    if (out.vector == hidden.vector) hidden.size = std::max(hidden.size, out.first + out.size);
  }
  std::vector<Span> kept = {hidden};
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (!alone[i]) continue;
    const Span out = writes(network.layers.front()[i]);
    for (std::size_t later = i + 1; later < alone.size(); ++later) {
      if (alone[later] || !reads_any(network.layers.front()[later], {out})) continue;
      kept.push_back(out);
      break;
    }
  }
  return kept;
}

std::vector<bool> feeds_state(const Block& layer) {
  std::vector<bool> feeds(layer.size());
  std::vector<Span> needed;  // by a state
  for (std::size_t i = layer.size(); i-- > 0;) {
    const bool feeds_later = std::any_of(needed.begin(), needed.end(),
                                         [&](const Span& span) { return overlap(span, writes(layer[i])); });
    feeds[i] = state_of(layer[i]) != kNone || feeds_later;
    if (!feeds[i]) continue;
    const std::vector<Span> unneeded = feeds_later ? std::vector<Span>() : output_alone(layer[i]);
    for (const Span& span : reads(layer[i])) {
      if (std::find(unneeded.begin(), unneeded.end(), span) == unneeded.end()) needed.push_back(span);
    }
  }
  return feeds;
}

bool decays_input(const Network& network, std::int64_t frames) {
  const std::vector<const Phase*> phases = phases_of(network);
  return std::any_of(phases.begin(), phases.end(), [frames](const Phase* phase) {
    const auto* const scan = std::get_if<SelectiveScan>(phase);
    return scan != nullptr && decays_input(*scan, frames);
  });
}

std::int64_t products_of(const Network& network) {
  std::int64_t count = 0;
  for (const Phase* phase : phases_of(network)) {
    if (const auto* const product = std::get_if<Product>(phase))
      count += product->in.size * product->out.size;
  }
  return count;
}

std::vector<const Phase*> phases_of(const Network& network) {
  std::vector<const Phase*> all;
  const auto append = [&all](const Block& block) {
    for (const Phase& phase : block) all.push_back(&phase);
  };
  append(network.input);
  for (const Block& layer : network.layers) append(layer);
  append(network.output);
  return all;
}

}  // namespace exphil::core
