#include "host/policy/workspaces.hpp"

namespace exphil::host {

Workspace::Workspace(const ForwardPlan& plan, int lane_count)
    : team(plan.most_regions),
      arena_(plan.shared_floats + padded(plan.states.floats()) +
             lane_count * (plan.own_floats + plan.scan_floats)) {
  float* next = arena_.data();
  const auto take = [&next](std::int64_t floats) { return std::exchange(next, next + floats); };
  float* const shared = take(plan.shared_floats);
  for (const VectorPlace& place : plan.places) at.push_back({shared + place.at, place.step});
  state = take(padded(plan.states.floats()));
  for (int i = 0; i < lane_count; ++i) {
    float* const own = take(plan.own_floats);
    lanes.push_back({at, false, own, take(plan.scan_floats)});
  }
}

void Workspace::begin(std::int64_t regions) {
  taken_.store(0, std::memory_order_relaxed);
  team.begin(regions);
}

// A lane that runs again because no helper was available does so after the others have ended.
Workspace::Lane& Workspace::next_lane() {
  return lanes[taken_.fetch_add(1, std::memory_order_relaxed) % lanes.size()];
}

}  // namespace exphil::host
