// The tensors of an operator's call, described without their data. Each operator has an enum that numbers its
// tensors and a function describe(shape, id) that returns one's description. The code here derives bytes,
// slices of the batch and alignment from it, for host and device addresses alike. Used by core/, host/ and
// cuda/. Plain values and pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "core/tensor.hpp"

namespace exphil::core {

// The widest aligned load of a kernel, in bytes. Every allocation of the library is a multiple of it.
inline constexpr int kBestAlignment = 16;

enum class Flow : std::uint8_t { in, out };

struct Axis {
  const char* name = "";  // as errors spell it
  std::int64_t size = 0;
};

class Axes {
 public:
  static constexpr int kMaxRank = 4;

  Axes() = default;
  Axes(std::initializer_list<Axis> axes);  // at most kMaxRank

  int rank() const { return rank_; }
  const Axis& operator[](int axis) const { return axes_[static_cast<std::size_t>(axis)]; }
  Axes without(int axis) const;
  Shape shape() const;
  std::string to_string() const;  // "{batch, seq, dim}"

 private:
  std::array<Axis, kMaxRank> axes_{};
  int rank_ = 0;
};

// One tensor, row-major and contiguous.
struct Operand {
  const char* name = "";  // as errors spell it
  Flow flow = Flow::in;
  Dtype dtype = Dtype::f32;
  bool present = false;       // the call has it
  bool per_sequence = false;  // its first axis is the batch; else all sequences share it
  Axes axes;

  // Both are 0 where the call has no such tensor, and throw limit_exceeded beyond 63 bits.
  std::size_t bytes() const;
  std::size_t sequence_stride() const;  // bytes from one sequence to the next; 0 where they share the tensor
};

// How many operands the enum `Id` numbers, from 0. Each operator specialises it next to its enum.
template <class Id>
inline constexpr std::size_t kOperandCount = 0;

// One T for each operand of an operator.
template <class Id, class T>
class PerOperand {
 public:
  static constexpr std::size_t kCount = kOperandCount<Id>;
  static_assert(kCount > 0, "specialise kOperandCount for this enum");

  constexpr T& operator[](Id id) { return values_[static_cast<std::size_t>(id)]; }
  constexpr const T& operator[](Id id) const { return values_[static_cast<std::size_t>(id)]; }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  bool operator==(const PerOperand& other) const { return values_ == other.values_; }
  bool operator!=(const PerOperand& other) const { return !(*this == other); }

 private:
  std::array<T, kCount> values_{};
};

// Every operand of an operator, in order: for loops.
template <class Id>
constexpr std::array<Id, kOperandCount<Id>> all_operands() {
  std::array<Id, kOperandCount<Id>> ids{};
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Id>(i);
  return ids;
}

// The descriptions of all operands; describe(shape, id) is found by the type of `shape`.
template <class Id, class OperatorShape>
PerOperand<Id, Operand> describe_all(const OperatorShape& shape) {
  PerOperand<Id, Operand> table;
  for (const Id id : all_operands<Id>()) table[id] = describe(shape, id);
  return table;
}

// The address `bytes` after `address`, for a void pointer or an integer device address.
template <class Pointer>
Pointer offset_address(Pointer address, std::size_t bytes) {
  if constexpr (std::is_pointer_v<Pointer>) {
    return static_cast<char*>(address) + bytes;
  } else {
    return address + bytes;
  }
}

// The largest power of two that divides the address, up to kBestAlignment.
template <class Pointer>
int alignment_of(Pointer address) {
  std::uint64_t number = 0;
  if constexpr (std::is_pointer_v<Pointer>) {
    number = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address));
  } else {
    number = static_cast<std::uint64_t>(address);
  }
  int alignment = kBestAlignment;
  while (number % static_cast<std::uint64_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

// sequence_stride() of every operand.
template <class Id>
PerOperand<Id, std::size_t> sequence_strides(const PerOperand<Id, Operand>& table) {
  PerOperand<Id, std::size_t> strides;
  for (const Id id : all_operands<Id>()) strides[id] = table[id].sequence_stride();
  return strides;
}

// The addresses for the batch from sequence `begin` on. Absent and shared operands keep theirs.
template <class Id, class Pointer>
PerOperand<Id, Pointer> slice_batch(const PerOperand<Id, std::size_t>& strides,
                                    PerOperand<Id, Pointer> addresses, std::int64_t begin) {
  for (const Id id : all_operands<Id>()) {
    const std::size_t bytes = static_cast<std::size_t>(begin) * strides[id];
    if (bytes > 0 && addresses[id] != Pointer{}) addresses[id] = offset_address(addresses[id], bytes);
  }
  return addresses;
}

}  // namespace exphil::core
