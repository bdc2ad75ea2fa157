#include "core/scan/shape.hpp"

#include <array>
#include <cstring>

#include "core/hash.hpp"

namespace exphil::core {

namespace {

std::int64_t bits_of(float value) {
  const float without_sign_of_zero = value + 0.0f;
  std::int32_t bits = 0;
  std::memcpy(&bits, &without_sign_of_zero, sizeof bits);
  return bits;
}

// Every value of a shape, for equality and the hash.
using Values = std::array<std::int64_t, 17 + kOperandCount<ScanOperand>>;

Values values_of(const ScanShape& s) {
  const ScanOptions& o = s.options;
  Values values = {s.batch,
                   s.seq,
                   s.dim,
                   s.state,
                   static_cast<std::int64_t>(s.dtype),
                   s.complex,
                   s.full_matrix,
                   s.b_layout.constant,
                   s.b_layout.groups,
                   s.c_layout.constant,
                   s.c_layout.groups,
                   static_cast<std::int64_t>(o.discretization),
                   o.dt_softplus,
                   bits_of(o.dt_min),
                   bits_of(o.dt_max),
                   static_cast<std::int64_t>(o.direction),
                   static_cast<std::int64_t>(o.algorithm)};
  std::size_t at = 17;
  for (const std::uint8_t alignment : s.alignment) values[at++] = alignment;
  return values;
}

}  // namespace

ScanShape::ScanShape() {
  for (const ScanOperand id :
       {ScanOperand::x, ScanOperand::dt, ScanOperand::a, ScanOperand::b, ScanOperand::c, ScanOperand::y}) {
    add(id);
  }
}

bool ScanShape::operator==(const ScanShape& other) const {
  return values_of(*this) == values_of(other);
}

std::uint64_t hash(const ScanShape& shape) {
  const Values values = values_of(shape);
  return hash64(values.data(), sizeof values);
}

}  // namespace exphil::core
