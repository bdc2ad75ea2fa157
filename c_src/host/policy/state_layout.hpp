// Where the parts of an agent's state lie in the CPU's memory: phase after phase, as they are used.
// Immutable; safe to share.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/network.hpp"
#include "host/policy/panel_place.hpp"

namespace exphil::host {

class StateLayout {
 public:
  explicit StateLayout(const core::Network& network);
  std::int64_t floats() const { return floats_; }
  const PanelPlace& place(core::StateId id) const { return places_[static_cast<std::size_t>(id)]; }
  // Makes it a new agent's: zeros, or what the network says.
  void reset(float* state) const;
  void reset(float* state, core::StateId id) const;  // that part of it
  // From a state in this layout to the public order of its values, and back.
  void read(const float* state, float* values) const;
  void write(const float* values, float* state) const;

 private:
  std::vector<PanelPlace> places_;
  std::int64_t floats_ = 0;
  std::vector<float> initial_;  // empty: zeros
};

}  // namespace exphil::host
