// Chooses code by the kind of a gated cell or of a recurrence over heads, which kernels/common/cells.cuh and
// heads.cuh need when it is compiled. Pure functions; any thread.
#pragma once

#include <type_traits>

#include "kernels/common/cells.cuh"
#include "kernels/common/heads.cuh"

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

// Calls use(std::integral_constant of the rule).
template <class Use>
auto with_rule(formulas::HeadRule rule, Use use) {
  using formulas::HeadRule;
  if (rule == HeadRule::delta) return use(std::integral_constant<HeadRule, HeadRule::delta>());
  if (rule == HeadRule::trapezoid) return use(std::integral_constant<HeadRule, HeadRule::trapezoid>());
  return use(std::integral_constant<HeadRule, HeadRule::linear>());
}

}  // namespace exphil::core
