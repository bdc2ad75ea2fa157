#include "host/policy/state_layout.hpp"

#include <variant>

namespace exphil::host {

StateLayout::StateLayout(const core::Network& network) : places_(network.states.size()) {
  for (const core::Phase* phase : core::phases_of(network)) {
    const core::StateId id = core::state_of(*phase);
    if (id == core::kNone) continue;
    const core::StatePart& part = network.state(id);
    const bool together = std::holds_alternative<core::SelectiveScan>(*phase);
    const PanelPlace place{floats_, part.rows, part.columns, together};
    places_[static_cast<std::size_t>(id)] = place;
    floats_ += place.floats();
  }
}

void StateLayout::read(const float* state, float* values) const {
  for (const PanelPlace& place : places_) {
    place.read(state, values);
    values += place.rows * place.columns;
  }
}

void StateLayout::write(const float* values, float* state) const {
  for (const PanelPlace& place : places_) {
    place.write(values, state);
    values += place.rows * place.columns;
  }
}

}  // namespace exphil::host
