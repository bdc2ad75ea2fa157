// A selective scan without its data: sizes, options, and which tensors the call has. Plain values: scans of
// equal shape share plans, kernels and launches. Made by validate_scan and by tests; read by every backend.
// Any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "core/direction.hpp"
#include "core/dt_options.hpp"
#include "core/operator_call.hpp"
#include "core/scan/operands.hpp"
#include "core/tensor.hpp"
#include "kernels/common/formulas.cuh"

namespace exphil::core {

// How time is split. automatic: the backend decides by shape. The others are for tests and benchmarks.
enum class ScanAlgorithm { automatic, sequential, chunked };

struct ScanOptions : DtOptions {
  formulas::Discretization discretization = formulas::Discretization::zoh;
  Direction direction = Direction::forward;
  ScanAlgorithm algorithm = ScanAlgorithm::automatic;
};

// How b or c is laid out. groups is 1 for {batch, seq, state}.
struct ProjectionLayout {
  bool constant = false;  // {dim, state}
  std::int64_t groups = 1;
};

// As made: x, dt, a, b, c and y, each with the best alignment.
struct ScanShape : PresentOperands<ScanOperand> {
  ScanShape();

  std::int64_t batch = 0, seq = 0, dim = 0, state = 0;
  // Of x, dt, z and y: f32, f16 or bf16; f32 where `complex`. Of b and c too, unless `complex`.
  Dtype dtype = Dtype::f32;
  bool complex = false;      // a, b, c and states are c64
  bool full_matrix = false;  // a is {dim, state, state}
  ProjectionLayout b_layout, c_layout;
  ScanOptions options;

  std::int64_t y_elements() const { return batch * seq * dim; }
  std::int64_t state_floats() const { return batch * dim * state * (complex ? 2 : 1); }

  bool operator==(const ScanShape& other) const;
  bool operator!=(const ScanShape& other) const { return !(*this == other); }
};

// Equal for equal shapes; the same on every machine.
std::uint64_t hash(const ScanShape& shape);

// `shape` with the alignment that the addresses of its operands have.
template <class Pointer>
ScanShape with_alignment_of(ScanShape shape, const ScanOperands<Pointer>& operands) {
  for (const ScanOperand id : all_operands<ScanOperand>()) {
    if (shape.has(id)) shape.add(id, alignment_of(operands[id]));
  }
  return shape;
}

}  // namespace exphil::core

template <>
struct std::hash<exphil::core::ScanShape> {
  std::size_t operator()(const exphil::core::ScanShape& shape) const noexcept {
    return static_cast<std::size_t>(exphil::core::hash(shape));
  }
};
