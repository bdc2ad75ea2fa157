#include "host/policy/plan.hpp"

#include <numeric>
#include <variant>

#include "host/policy/phase_access.hpp"
#include "host/policy/weights.hpp"
#include "host/recurrence/tile.hpp"

namespace exphil::host {

namespace {

// Floats between the memories of two vectors. Without them the first rows of all vectors, often the only
// ones, lie in the same sets of the L1 cache.
constexpr std::int64_t kApart = 20 * kPanel;

}  // namespace

ForwardPlan::ForwardPlan(const core::Network& network) : states(network) {
  for (const core::Span& span : core::kept_of_frame(network)) {
    if (!keeps(span.vector)) kept.push_back(span.vector);
  }
  plan_blocks(network);
  place_vectors(network);
}

void ForwardPlan::plan_blocks(const core::Network& network) {
  using Wanted = std::vector<core::VectorId>;
  const auto plan_of = [&](const core::Block& block, const PhaseList& phases, const Wanted& wanted) {
    return BlockPlan{schedule_of(network, block, phases, wanted, false),
                     schedule_of(network, block, phases, wanted, true)};
  };
  const auto all_of = [](const core::Block& block) {
    PhaseList all(block.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  };
  const Wanted hidden = {network.hidden}, outs = {network.outs};
  input = plan_of(network.input, all_of(network.input), hidden);
  output = plan_of(network.output, all_of(network.output), outs);
  most_regions = 1 + 2 * input.most_regions() + output.most_regions();
  if (network.layers.empty()) return;
  const core::Block& block = network.layers.front();
  const std::vector<bool> frame_only = core::frame_only(network);
  PhaseList alone, after;
  for (std::size_t i = 0; i < block.size(); ++i) (frame_only[i] ? alone : after).push_back(i);
  layer = plan_of(block, all_of(block), hidden);
  frame_part = plan_of(block, alone, kept);
  window_part = plan_of(block, after, hidden);
  feeds_state = core::feeds_state(block);
  most_regions += frame_part.most_regions() + static_cast<std::int64_t>(network.layers.size()) *
                                                  std::max(layer.most_regions(), window_part.most_regions());
}

void ForwardPlan::place_vectors(const core::Network& network) {
  for (const std::int64_t step : row_steps(network)) {
    places.push_back({step, shared_floats});
    shared_floats += padded(kPassRows * step) + kApart;
  }
  for (const core::Phase* phase : core::phases_of(network)) {
    if (is_small(*phase, false)) {
      const std::int64_t rows = is_small(*phase, true) ? kPassRows : kFewRows;
      VectorPlace& out = places[static_cast<std::size_t>(core::writes(*phase).vector)];
      if (out.own_at != core::kNone) continue;
      out.own_at = own_floats;
      own_floats += padded(rows * out.step);
    } else if (const auto* const scan = std::get_if<core::SelectiveScan>(phase)) {
      scan_floats = std::max(scan_floats, padded(scan_scratch_floats(scan_rule_of(*scan))));
    }
  }
}

}  // namespace exphil::host
