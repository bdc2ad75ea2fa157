#include "host/policy/state_layout.hpp"

#include <variant>

namespace exphil::host {

StateLayout::StateLayout(const core::Network& network)
    : parts_(network.states), places_(network.states.size()) {
  for (const core::Phase* phase : core::phases_of(network)) {
    const core::StateId id = core::state_of(*phase);
    if (id == core::kNone) continue;
    const core::StatePart& part = network.state(id);
    const bool scan = std::holds_alternative<core::SelectiveScan>(*phase);
    StatePlace& place = places_[static_cast<std::size_t>(id)];
    place.at = floats_;
    place.columns = part.columns;
    place.panel = scan ? part.columns * kPanel : kPanel;
    place.column = scan ? kPanel : padded(part.rows);
    floats_ += padded(part.rows) * part.columns;
  }
}

template <class Each>
void StateLayout::for_values(const Each& each) const {
  std::int64_t value = 0;
  for (std::size_t id = 0; id < parts_.size(); ++id) {
    const StatePlace& place = places_[id];
    for (std::int64_t row = 0; row < parts_[id].rows; ++row) {
      const std::int64_t at = place.at + row / kPanel * place.panel + row % kPanel;
      for (std::int64_t c = 0; c < place.columns; ++c) each(value++, at + c * place.column);
    }
  }
}

void StateLayout::read(const float* state, float* values) const {
  for_values([=](std::int64_t value, std::int64_t place) { values[value] = state[place]; });
}

void StateLayout::write(const float* values, float* state) const {
  for_values([=](std::int64_t value, std::int64_t place) { state[place] = values[value]; });
}

}  // namespace exphil::host
