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

bool has_recall(const core::Block& block) {
  return std::any_of(block.begin(), block.end(),
                     [](const core::Phase& phase) { return core::recalled_by(phase) != core::kNone; });
}

}  // namespace

std::int64_t BlockPlan::most_regions(bool of_sequences) const {
  auto most = static_cast<std::int64_t>(std::max(few.regions.size(), many.regions.size()));
  if (!walks || !of_sequences) return most;
  std::int64_t count = 0;
  for (const Region& region : sequences.regions) {
    // A walk that is split by panels recalls once for each agent, and has one more for each row.
    count += region.steps.front().begins_walk ? 2 * kPassRows : 1;
  }
  return std::max(most, count);
}

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
    const auto schedule = [&](PassKind kind) { return schedule_of(network, block, phases, wanted, kind); };
    BlockPlan plan{schedule(PassKind::few_rows), schedule(PassKind::many_rows), {}, has_recall(block)};
    if (plan.walks) plan.sequences = schedule(PassKind::sequences);
    return plan;
  };
  const auto all_of = [](const core::Block& block) {
    PhaseList all(block.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  };
  const Wanted hidden = {network.hidden}, outs = {network.outs};
  input = plan_of(network.input, all_of(network.input), hidden);
  output = plan_of(network.output, all_of(network.output), outs);
  step_regions = most_regions = regions(network, false);
  if (network.layers.empty()) return;
  const core::Block& block = network.layers.front();
  const std::vector<bool> frame_only = core::frame_only(network);
  PhaseList alone, after;
  for (std::size_t i = 0; i < block.size(); ++i) (frame_only[i] ? alone : after).push_back(i);
  layer = plan_of(block, all_of(block), hidden);
  frame_part = plan_of(block, alone, kept);
  window_part = plan_of(block, after, hidden);
  feeds_state = core::feeds_state(block);
  window_reads_hidden = after.empty();
  for (const std::size_t i : after) {
    for (const core::Span& in : core::reads(block[i])) window_reads_hidden |= in.vector == network.hidden;
  }
  step_regions = regions(network, false), most_regions = regions(network, true);
}

std::int64_t ForwardPlan::regions(const core::Network& network, bool of_sequences) const {
  const std::int64_t layers =
      std::max(layer.most_regions(of_sequences), window_part.most_regions(of_sequences));
  return 1 + 2 * input.most_regions(false) + output.most_regions(false) + frame_part.most_regions(false) +
         static_cast<std::int64_t>(network.layers.size()) * layers;
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
