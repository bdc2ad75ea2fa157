#include "core/operands.hpp"

#include "core/error.hpp"

namespace exphil::core {

namespace {

// The bytes of all axes from `first` on.
std::size_t bytes_from(const Operand& operand, int first) {
  std::int64_t bytes = static_cast<std::int64_t>(dtype_size(operand.dtype));
  for (int axis = first; axis < operand.axes.rank(); ++axis) {
    if (__builtin_mul_overflow(bytes, operand.axes[axis].size, &bytes)) {
      fail(ErrorKind::limit_exceeded, operand.name, "the size of ", operand.name,
           " is beyond the limit of 2^63 - 1 bytes: ", operand.axes.shape().to_string());
    }
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace

Axes::Axes(std::initializer_list<Axis> axes) {
  for (const Axis& axis : axes) {
    if (rank_ == kMaxRank) fail(ErrorKind::internal, "", "an operand has at most ", kMaxRank, " axes");
    axes_[static_cast<std::size_t>(rank_++)] = axis;
  }
}

Axes Axes::without(int axis) const {
  Axes rest;
  for (int i = 0; i < rank_; ++i) {
    if (i != axis) rest.axes_[static_cast<std::size_t>(rest.rank_++)] = (*this)[i];
  }
  return rest;
}

Shape Axes::shape() const {
  Shape shape;
  for (int axis = 0; axis < rank_; ++axis) shape.push_back((*this)[axis].size);
  return shape;
}

std::string Axes::to_string() const {
  std::string text = "{";
  for (int axis = 0; axis < rank_; ++axis) text += std::string(axis > 0 ? ", " : "") + (*this)[axis].name;
  return text + "}";
}

std::size_t Operand::bytes() const {
  return present ? bytes_from(*this, 0) : 0;
}

std::size_t Operand::sequence_stride() const {
  return present && per_sequence ? bytes_from(*this, 1) : 0;
}

}  // namespace exphil::core
