#include "host/policy/workspaces.hpp"

namespace exphil::host {

Workspace::Workspace(const ForwardPlan& plan, int lanes)
    : team(plan.most_regions),
      arena_(plan.shared_floats + padded(plan.states.floats()) +
             lanes * (plan.own_floats + plan.scan_floats)) {
  float* next = arena_.data();
  const auto take = [&next](std::int64_t floats) {
    float* const taken = next;
    next += floats;
    return taken;
  };
  float* const shared = take(plan.shared_floats);
  for (std::size_t id = 0; id < plan.vectors(); ++id) {
    const VectorPlace& place = plan.place(static_cast<core::VectorId>(id));
    at_.push_back({shared + place.at, place.step});
  }
  state = take(padded(plan.states.floats()));
  lane_rows_.assign(static_cast<std::size_t>(lanes), at_);
  for (std::vector<MatrixRows>& rows : lane_rows_) {
    float* const own = take(plan.own_floats);
    lanes_.push_back({rows.data(), own, take(plan.scan_floats)});
  }
}

void Workspace::begin() {
  taken_.store(0, std::memory_order_relaxed);
  team.begin();
}

// A lane that runs again because no helper was available does so after the others have ended.
Workspace::Lane Workspace::next_lane() {
  return lanes_[taken_.fetch_add(1, std::memory_order_relaxed) % lanes_.size()];
}

}  // namespace exphil::host
