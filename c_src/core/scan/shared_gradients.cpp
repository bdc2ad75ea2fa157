#include "core/scan/shared_gradients.hpp"

#include <cstdint>

#include "core/half.hpp"

namespace exphil::core {

std::vector<ScanOperand> shared_gradients(const ScanShape& shape) {
  std::vector<ScanOperand> shared;
  for (const ScanOperand id : all_operands<ScanOperand>()) {
    const Operand operand = describe(shape, id);
    if (operand.present && operand.flow == Flow::out && !operand.per_sequence) shared.push_back(id);
  }
  return shared;
}

void add_numbers(const Operand& operand, const void* from, void* to) {
  if (operand.dtype == Dtype::f16 || operand.dtype == Dtype::bf16) {
    const bool f16 = operand.dtype == Dtype::f16;
    const auto* const added = static_cast<const std::uint16_t*>(from);
    auto* const sum = static_cast<std::uint16_t*>(to);
    for (std::size_t i = 0; i < operand.bytes() / sizeof *sum; ++i) {
      sum[i] = f16 ? f32_to_f16(f16_to_f32(sum[i]) + f16_to_f32(added[i]))
                   : f32_to_bf16(bf16_to_f32(sum[i]) + bf16_to_f32(added[i]));
    }
    return;
  }
  const auto* const added = static_cast<const float*>(from);  // c64 as pairs
  auto* const sum = static_cast<float*>(to);
  for (std::size_t i = 0; i < operand.bytes() / sizeof *sum; ++i) sum[i] += added[i];
}

}  // namespace exphil::core
