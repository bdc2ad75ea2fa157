// The tensors of a selective scan, as a table with one row each. Checking, slicing the batch, staging and the
// kernels' arguments are loops over this table (core/operands.hpp). Pure functions; any thread.
//
//   x, dt, :z, y, y_reverse   {batch, seq, dim}           of the shape's dtype
//   a                         {dim, state}, or {dim, state, state} where full_matrix
//   b, c                      {batch, seq, groups, state}, or {dim, state} where constant
//   :d, :dt_bias              {dim}                       f32
//   :initial_state            {batch, dim, state}
//   final_state               {batch, dim, state}         h after the last step
//   states                    {batch, seq, dim, state}    h after each step
//
// a and the states are f32, c64 where the scan is complex; b and c are of the shape's dtype, or c64.
//
// The gradient of a scan (core/scan/gradient.hpp) has the scan's inputs, and instead of its results
//   dy                        like y                      in
//   :d_final_state            like final_state            in
//   given_states              like states                 in: "states" of scan_with_states
//   grad_x, grad_dt, ...      like their operand          out
#pragma once

#include <cstdint>

#include "core/operands.hpp"

namespace exphil::core {

struct ScanShape;

enum class ScanOperand : std::uint8_t {
  x,
  dt,
  a,
  b,
  c,
  d,
  z,
  dt_bias,
  initial_state,
  y,
  y_reverse,  // y from the last step to the first, where both directions are scanned
  final_state,
  states,
  dy,
  d_final_state,
  given_states,
  grad_x,
  grad_dt,
  grad_a,
  grad_b,
  grad_c,
  grad_d,
  grad_z,
  grad_dt_bias,
  grad_initial_state
};
template <>
inline constexpr std::size_t kOperandCount<ScanOperand> =
    static_cast<std::size_t>(ScanOperand::grad_initial_state) + 1;

// An address for each operand: void* in host memory, CUdeviceptr on a device. Null where the call has none.
template <class Pointer>
using ScanOperands = PerOperand<ScanOperand, Pointer>;

// Throws nothing.
Operand describe(const ScanShape& shape, ScanOperand id);
PerOperand<ScanOperand, Operand> describe_operands(const ScanShape& shape);

}  // namespace exphil::core
