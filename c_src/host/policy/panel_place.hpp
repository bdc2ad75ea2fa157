// Where an array {rows, columns} lies in panels of kPanel rows: a part of a state, weights of a phase, or
// their gradient. Plain data; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "host/simd/simd.hpp"

namespace exphil::host {

// Panel p of column c is at + p panel() + c column(). Padding is never written.
struct PanelPlace {
  std::int64_t at = 0, rows = 0, columns = 0;
  bool together = false;    // the columns of a panel, as a scan reads them; else each column has its own row
  bool by_columns = false;  // the array is {columns, rows}

  std::int64_t panel() const { return together ? columns * kPanel : kPanel; }
  std::int64_t column() const { return together ? kPanel : padded(rows); }
  std::int64_t floats() const { return padded(rows) * columns; }

  // Panels [begin, end).
  void copy(const float* from, float* to, std::int64_t begin, std::int64_t end) const {
    const std::int64_t step = panel(), runs = together ? 1 : columns;
    for (std::int64_t run = 0, first = at; run < runs; ++run, first += column()) {
      std::copy(from + first + begin * step, from + first + end * step, to + first + begin * step);
    }
  }
  // From memory of this layout to the array, and back.
  void read(const float* memory, float* values) const {
    for_values([&](std::int64_t place) { *values++ = memory[place]; });
  }
  void write(const float* values, float* memory) const {
    for_values([&](std::int64_t place) { memory[place] = *values++; });
  }

 private:
  template <class Each>
  void for_values(const Each& each) const {
    const auto place = [this](std::int64_t row, std::int64_t c) {
      return at + row / kPanel * panel() + row % kPanel + c * column();
    };
    for (std::int64_t c = 0; by_columns && c < columns; ++c) {
      for (std::int64_t row = 0; row < rows; ++row) each(place(row, c));
    }
    for (std::int64_t row = 0; !by_columns && row < rows; ++row) {
      for (std::int64_t c = 0; c < columns; ++c) each(place(row, c));
    }
  }
};

}  // namespace exphil::host
