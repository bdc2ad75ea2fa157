// Chooses code by the cell of a fused operator. Pure functions; any thread.
#pragma once

#include <type_traits>

#include "kernels/common/cells.cuh"

namespace exphil::core {

template <formulas::Cell kCell>
using CellConstant = std::integral_constant<formulas::Cell, kCell>;

// Calls use(CellConstant) for a cell with a product of the state: GRU or LSTM.
template <class Use>
auto with_dense_cell(formulas::Cell cell, Use use) {
  using formulas::Cell;
  return cell == Cell::gru ? use(CellConstant<Cell::gru>()) : use(CellConstant<Cell::lstm>());
}

// For every other cell.
template <class Use>
auto with_linear_cell(formulas::Cell cell, Use use) {
  using formulas::Cell;
  switch (cell) {
    case Cell::min_gru:
      return use(CellConstant<Cell::min_gru>());
    case Cell::min_lstm:
      return use(CellConstant<Cell::min_lstm>());
    case Cell::elu_gru:
      return use(CellConstant<Cell::elu_gru>());
    case Cell::diag_linear:
      return use(CellConstant<Cell::diag_linear>());
    case Cell::liquid:
      return use(CellConstant<Cell::liquid>());
    case Cell::mix:
      return use(CellConstant<Cell::mix>());
    case Cell::share:
      return use(CellConstant<Cell::share>());
    default:
      return use(CellConstant<Cell::linear>());
  }
}

}  // namespace exphil::core
