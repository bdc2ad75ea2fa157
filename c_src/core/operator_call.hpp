// A call of an operator with a table of operands (core/operands.hpp): which tensors it has and where they
// are. Each operator adds its sizes and options. Plain data; any thread.
#pragma once

#include <cstdint>

#include "core/device_ranges.hpp"
#include "core/operands.hpp"

namespace exphil::core {

// Which operands a call has: the base of an operator's shape.
template <class Id>
struct PresentOperands {
  // By operand: a power of two that divides its address, in bytes, up to kBestAlignment; 0 where the call has
  // no such tensor. Kernels rely on it. Host addresses may have less: a call on host tensors copies them to
  // aligned memory.
  PerOperand<Id, std::uint8_t> alignment{};

  bool has(Id id) const { return alignment[id] > 0; }
  void add(Id id, int multiple_of = kBestAlignment) {
    alignment[id] = static_cast<std::uint8_t>(multiple_of);
  }
  void remove(Id id) { alignment[id] = 0; }
};

// A shape and the addresses of its operands, in host memory or on a device; null where the call has none.
// Inputs are never written.
template <class OperatorShape, class Id>
struct OperatorCall {
  OperatorShape shape;
  PerOperand<Id, void*> operands;
  DeviceRanges on_device;  // of a call on host tensors: the inputs that are in device memory all the same

  const void* input(Id id) const { return operands[id]; }
  // A tensor of the call. The address of one without elements may be null.
  void set(Id id, const void* address) {
    shape.add(id);
    operands[id] = const_cast<void*>(address);
  }
  // A tensor of the call where the address is not null; else the call has none.
  void set_given(Id id, const void* address) {
    set(id, address);
    if (address == nullptr) shape.remove(id);
  }
};

}  // namespace exphil::core
