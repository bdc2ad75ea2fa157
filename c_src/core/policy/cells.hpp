// Chooses code by the kind of a gated cell, which kernels/common/cells.cuh needs when it is compiled. Pure
// functions; any thread.
#pragma once

#include <type_traits>

#include "kernels/common/cells.cuh"

namespace exphil::core {

// Calls use(std::integral_constant of the cell).
template <class Use>
auto with_cell(formulas::Cell cell, Use use) {
  using formulas::Cell;
  switch (cell) {
    case Cell::gru:
      return use(std::integral_constant<Cell, Cell::gru>());
    case Cell::lstm:
      return use(std::integral_constant<Cell, Cell::lstm>());
    case Cell::min_gru:
      return use(std::integral_constant<Cell, Cell::min_gru>());
    default:
      return use(std::integral_constant<Cell, Cell::min_lstm>());
  }
}

}  // namespace exphil::core
