#include "core/tensor.hpp"

#include <cstring>

#include "core/error.hpp"

namespace exphil::core {

namespace {

struct DtypeEntry {
  Dtype dtype;
  const char* name;
  std::size_t size;
};

constexpr DtypeEntry kDtypes[] = {
    {Dtype::f32, "f32", 4},
    {Dtype::f16, "f16", 2},
    {Dtype::bf16, "bf16", 2},
    {Dtype::c64, "c64", 8},
    {Dtype::f64, "f64", 8},
    {Dtype::s32, "s32", 4},
    {Dtype::s64, "s64", 8},
    {Dtype::u8, "u8", 1},
    {Dtype::u16, "u16", 2},
    {Dtype::u32, "u32", 4},
    {Dtype::u64, "u64", 8},
    {Dtype::s8, "s8", 1},
    {Dtype::s16, "s16", 2},
    {Dtype::boolean, "bool", 1},
    {Dtype::f8_e4m3fn, "f8_e4m3fn", 1},
    {Dtype::f8_e5m2, "f8_e5m2", 1},
    {Dtype::f8_e8m0, "f8_e8m0", 1},
    {Dtype::f8_e4m3fnuz, "f8_e4m3fnuz", 1},
    {Dtype::f8_e5m2fnuz, "f8_e5m2fnuz", 1},
};

const DtypeEntry& entry(Dtype dtype) {
  for (const DtypeEntry& candidate : kDtypes) {
    if (candidate.dtype == dtype) return candidate;
  }
  fail(ErrorKind::internal, "", "no such dtype: ", static_cast<int>(dtype));
}

}  // namespace

std::size_t dtype_size(Dtype dtype) {
  return entry(dtype).size;
}

const char* dtype_name(Dtype dtype) {
  return entry(dtype).name;
}

bool parse_dtype(const std::string& name, Dtype* dtype) {
  for (const DtypeEntry& candidate : kDtypes) {
    if (name == candidate.name) {
      *dtype = candidate.dtype;
      return true;
    }
  }
  return false;
}

std::int64_t checked_multiply(std::int64_t left, std::int64_t right, const std::string& argument) {
  if (left < 0 || right < 0) {
    fail(ErrorKind::invalid_argument, argument, argument, " has a negative size: ", left < 0 ? left : right);
  }
  std::int64_t product = 0;
  if (__builtin_mul_overflow(left, right, &product)) {
    fail(ErrorKind::limit_exceeded, argument, "the size of ", argument,
         " is beyond the limit of 2^63 - 1: ", left, " * ", right);
  }
  return product;
}

Shape::Shape(std::initializer_list<std::int64_t> dims) {
  for (std::int64_t dim : dims) push_back(dim);
}

void Shape::push_back(std::int64_t dim) {
  if (rank_ == kMaxRank) {
    fail(ErrorKind::limit_exceeded, "", "a tensor may have at most ", kMaxRank, " dimensions");
  }
  dims_[static_cast<std::size_t>(rank_++)] = dim;
}

std::int64_t Shape::elements(const std::string& argument) const {
  std::int64_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) product = checked_multiply(product, (*this)[axis], argument);
  return product;
}

std::string Shape::to_string() const {
  std::string text = "{";
  for (int axis = 0; axis < rank_; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string((*this)[axis]);
  }
  return text + "}";
}

bool Shape::operator==(const Shape& other) const {
  if (rank_ != other.rank_) return false;
  for (int axis = 0; axis < rank_; ++axis) {
    if ((*this)[axis] != other[axis]) return false;
  }
  return true;
}

void check_bytes(const TensorView& view, const std::string& argument) {
  const std::int64_t elements = view.shape.elements(argument);
  const std::int64_t needed =
      checked_multiply(elements, static_cast<std::int64_t>(dtype_size(view.dtype)), argument);
  if (static_cast<std::uint64_t>(needed) != view.bytes) {
    fail(ErrorKind::invalid_argument, argument, argument, " of type ", dtype_name(view.dtype), " and shape ",
         view.shape.to_string(), " needs ", needed, " bytes, got ", view.bytes);
  }
}

}  // namespace exphil::core
