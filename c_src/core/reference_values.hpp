// The elements of a call's tensors in double, for the scalar references. Used by core/recurrent and core/ssd.
// Pure; any thread.
#pragma once

#include <vector>

#include "core/half.hpp"
#include "core/operands.hpp"

namespace exphil::core {

// Of an operand in f32, f16 or bf16; zeros where the call has none.
inline std::vector<double> values_of(const Operand& operand, const void* data) {
  std::vector<double> values(static_cast<std::size_t>(operand.axes.shape().elements(operand.name)));
  if (!operand.present) return values;
  const auto* halves = static_cast<const std::uint16_t*>(data);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = operand.dtype == Dtype::f16    ? f16_to_f32(halves[i])
                : operand.dtype == Dtype::bf16 ? bf16_to_f32(halves[i])
                                               : static_cast<const float*>(data)[i];
  }
  return values;
}

}  // namespace exphil::core
