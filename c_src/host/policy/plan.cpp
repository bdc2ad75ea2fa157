#include "host/policy/plan.hpp"

#include <algorithm>
#include <numeric>
#include <variant>

#include "core/error.hpp"
#include "host/policy/schedule.hpp"
#include "host/policy/weights.hpp"
#include "host/recurrence/tile.hpp"

namespace exphil::host {

namespace {

// Floats between the memories of two vectors. Without them the first rows of all vectors, often the only
// ones, lie in the same sets of the L1 cache.
constexpr std::int64_t kApart = 20 * kPanel;

PhaseList all_of(const core::Block& block) {
  PhaseList all(block.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

BlockPlan plan_of(const ScheduleRequest& request) {
  return {schedule_of(request, false), schedule_of(request, true)};
}

const core::Block& a_layer(const core::Network& network) {
  static const core::Block none;
  return network.layers.empty() ? none : network.layers.front();
}

}  // namespace

std::int64_t BlockPlan::most_regions() const {
  return static_cast<std::int64_t>(std::max(few.regions.size(), many.regions.size()));
}

bool ForwardPlan::keeps(core::VectorId id) const {
  return std::find(kept.begin(), kept.end(), id) != kept.end();
}

ForwardPlan::ForwardPlan(const core::Network& network) : states(network) {
  for (const core::Span& span : core::kept_of_frame(network)) {
    if (!keeps(span.vector)) kept.push_back(span.vector);
  }
  place_vectors(network);
  const core::Block& block = a_layer(network);
  const std::vector<core::VectorId> hidden = {network.hidden}, outs = {network.outs};
  PhaseList alone, after;
  const std::vector<bool> frame_only = core::frame_only(network);
  for (std::size_t i = 0; i < block.size(); ++i) (frame_only[i] ? alone : after).push_back(i);
  input = plan_of({network, network.input, all_of(network.input), places_, hidden});
  layer = plan_of({network, block, all_of(block), places_, hidden});
  frame_part = plan_of({network, block, alone, places_, kept});
  window_part = plan_of({network, block, after, places_, hidden});
  output = plan_of({network, network.output, all_of(network.output), places_, outs});
  feeds_state = core::feeds_state(block);
  const auto layers = static_cast<std::int64_t>(network.layers.size());
  most_regions = 1 + 2 * input.most_regions() + frame_part.most_regions() +
                 layers * std::max(layer.most_regions(), window_part.most_regions()) + output.most_regions();
}

void ForwardPlan::place_vectors(const core::Network& network) {
  places_.resize(network.vectors.size());
  const std::vector<std::int64_t> steps = row_steps(network);
  for (std::size_t id = 0; id < places_.size(); ++id) {
    places_[id].step = steps[id];
    places_[id].memory = static_cast<core::VectorId>(id);
  }
  const auto take_own = [this](core::VectorId id, std::int64_t floats) {
    std::int64_t& at = places_[static_cast<std::size_t>(id)].own_at;
    if (at == core::kNone) at = own_floats, own_floats += padded(floats);
  };
  for (const core::Phase* phase : core::phases_of(network)) {
    if (const auto* const norm = std::get_if<core::Norm>(phase)) {
      take_own(norm->out.vector, kFewRows * place(norm->out.vector).step);
    } else if (const auto* const mean = std::get_if<core::Mean>(phase)) {
      take_own(mean->out.vector, kPassRows);
    } else if (const auto* const scan = std::get_if<core::SelectiveScan>(phase)) {
      scan_floats = std::max(scan_floats, padded(scan_scratch_floats(scan_rule_of(*scan))));
    }
  }
  share_memory(network, a_layer(network));
  for (std::size_t id = 0; id < places_.size(); ++id) {
    if (places_[id].memory != static_cast<core::VectorId>(id)) continue;
    places_[id].at = shared_floats;
    shared_floats += padded(kPassRows * places_[id].step) + kApart;
  }
  for (VectorPlace& place : places_) place.at = places_[static_cast<std::size_t>(place.memory)].at;
}

// What a ring keeps is read again by the next window.
void ForwardPlan::share_memory(const core::Network& network, const core::Block& block) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    const PhaseAccess access = access_of(network, block[i]);
    const core::VectorId in = access.replaces.vector;
    if (!access.replaces || keeps(in) || last_reader(block, in) != static_cast<int>(i)) continue;
    VectorPlace& out = places_[static_cast<std::size_t>(access.out.vector)];
    if (out.step == place(in).step) out.memory = place(in).memory;
  }
}

}  // namespace exphil::host
