// Where the parts of an agent's state lie in the CPU's memory: phase after phase, as they are used. A scan
// has its panels {blocks, columns, kPanel}; other phases have a row of padded channels for each column.
// Immutable; safe to share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/policy/network.hpp"
#include "host/simd/simd.hpp"

namespace exphil::host {

// Of one part: panel p of column c is at + p panel + c column.
struct StatePlace {
  std::int64_t at = 0, panel = 0, column = 0, columns = 0;

  // Panels [begin, end).
  void copy(const float* from, float* to, std::int64_t begin, std::int64_t end) const {
    if (panel == columns * kPanel) {  // a panel has its columns together
      std::copy(from + at + begin * panel, from + at + end * panel, to + at + begin * panel);
      return;
    }
    for (std::int64_t c = 0, row = at; c < columns; ++c, row += column) {
      std::copy(from + row + begin * panel, from + row + end * panel, to + row + begin * panel);
    }
  }
};

class StateLayout {
 public:
  explicit StateLayout(const core::Network& network);
  std::int64_t floats() const { return floats_; }
  const StatePlace& place(core::StateId id) const { return places_[static_cast<std::size_t>(id)]; }
  // From a state in this layout to the public order of its values, and back.
  void read(const float* state, float* values) const;
  void write(const float* values, float* state) const;

 private:
  // Calls each(index of a value, its place).
  template <class Each>
  void for_values(const Each& each) const;

  std::vector<core::StatePart> parts_;
  std::vector<StatePlace> places_;
  std::int64_t floats_ = 0;
};

}  // namespace exphil::host
