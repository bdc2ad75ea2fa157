// What the cases of the operators with operand tables share: tensors of any type from floats, and the results
// of a call in guarded memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "core/error.hpp"
#include "core/half.hpp"
#include "core/operands.hpp"
#include "support/scan_case.hpp"

namespace exphil::test {

inline std::vector<unsigned char> rounded(const std::vector<float>& values, core::Dtype dtype) {
  std::vector<unsigned char> bytes(values.size() * core::dtype_size(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half =
        dtype == core::Dtype::f16 ? core::f32_to_f16(values[i]) : core::f32_to_bf16(values[i]);
    const bool wide = dtype == core::Dtype::f32;
    std::memcpy(&bytes[i * core::dtype_size(dtype)], wide ? static_cast<const void*>(&values[i]) : &half,
                core::dtype_size(dtype));
  }
  return bytes;
}

// Each result by its operand, as floats; what is not a result is empty.
template <class Id>
using OperatorResults = core::PerOperand<Id, std::vector<float>>;

// The results for which can_have(id), or those of them in `wanted`. Throws where the run wrote behind one.
template <class Id, class OperatorCall, class CanHave, class Run>
OperatorResults<Id> run_guarded(OperatorCall call, const std::vector<Id>& wanted, const CanHave& can_have,
                                const Run& run) {
  constexpr std::size_t kGuard = 64;
  core::PerOperand<Id, std::vector<unsigned char>> memory;
  for (const Id id : core::all_operands<Id>()) {
    const bool want = wanted.empty() || std::find(wanted.begin(), wanted.end(), id) != wanted.end();
    if (!want || !can_have(id)) continue;
    call.shape.add(id);
    memory[id].assign(core::describe(call.shape, id).bytes() + kGuard, 0xcd);
    call.set(id, memory[id].data());
  }
  run(call);
  OperatorResults<Id> results;
  for (const Id id : core::all_operands<Id>()) {
    if (memory[id].empty()) continue;
    const core::Operand operand = core::describe(call.shape, id);
    if (!std::all_of(memory[id].end() - kGuard, memory[id].end(), [](unsigned char b) { return b == 0xcd; }))
      throw std::runtime_error(core::message("wrote behind ", operand.name));
    const std::size_t count = (memory[id].size() - kGuard) / core::dtype_size(operand.dtype);
    results[id] = widen_result(memory[id].data(), operand.dtype, count);
  }
  return results;
}

}  // namespace exphil::test
