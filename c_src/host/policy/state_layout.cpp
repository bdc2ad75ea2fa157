#include "host/policy/state_layout.hpp"

#include <algorithm>
#include <variant>

namespace exphil::host {

StateLayout::StateLayout(const core::Network& network) : places_(network.states.size()) {
  for (const core::Phase* phase : core::phases_of(network)) {
    const core::StateId id = core::state_of(*phase);
    if (id == core::kNone) continue;
    const core::StatePart& part = network.state(id);
    const bool together = std::holds_alternative<core::SelectiveScan>(*phase);
    PanelPlace place{floats_, part.rows, part.columns, together};
    // Each state of a cell has a row of its own, {units}; each value of a recurrence over heads too, {keys}.
    if (std::holds_alternative<core::GatedCell>(*phase) ||
        std::holds_alternative<core::HeadRecurrence>(*phase)) {
      place = {floats_, part.columns, part.rows, false, true};
    } else if (std::holds_alternative<core::Delay>(*phase) || std::holds_alternative<core::Angle>(*phase)) {
      place = {floats_, part.size(), 1};
    }
    places_[static_cast<std::size_t>(id)] = place;
    floats_ += place.floats();
  }
  for (std::size_t id = 0; id < places_.size(); ++id) {
    const std::vector<float>& initial = network.states[id].initial;
    if (initial.empty()) continue;
    initial_.resize(static_cast<std::size_t>(floats_));
    places_[id].write(initial.data(), initial_.data());
  }
}

void StateLayout::reset(float* state) const {
  for (std::size_t id = 0; id < places_.size(); ++id) reset(state, static_cast<core::StateId>(id));
}

void StateLayout::reset(float* state, core::StateId id) const {
  const std::int64_t at = place(id).at, floats = place(id).floats();
  if (initial_.empty()) {
    std::fill_n(state + at, floats, 0.0f);
  } else {
    std::copy_n(initial_.begin() + at, floats, state + at);
  }
}

void StateLayout::read(const float* state, float* values) const {
  for (const PanelPlace& place : places_) {
    place.read(state, values);
    values += place.rows * place.columns;
  }
}

// The padding too: that of a recurrence over heads takes part in sums.
void StateLayout::write(const float* values, float* state) const {
  std::fill_n(state, floats_, 0.0f);
  for (const PanelPlace& place : places_) {
    place.write(values, state);
    values += place.rows * place.columns;
  }
}

}  // namespace exphil::host
