// Dtypes, shapes and non-owning views of row-major, little-endian tensors. The caller keeps a view's bytes
// alive (a BEAM binary for the length of a NIF call, a checkpoint that was read).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace exphil::core {

// Element types with Nx's names. c64 is two f32 (real, imaginary). Those after s64 appear in checkpoint files
// only; no operator accepts them.
enum class Dtype {
  f32,
  f16,
  bf16,
  c64,
  f64,
  s32,
  s64,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  boolean,
  f8_e4m3fn,
  f8_e5m2,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz
};

std::size_t dtype_size(Dtype dtype);
const char* dtype_name(Dtype dtype);                      // "f32"
bool parse_dtype(const std::string& name, Dtype* dtype);  // false where the name is unknown

// The library multiplies sizes only through these: they throw limit_exceeded naming `argument`
// when the product does not fit in 63 bits.
std::int64_t checked_multiply(std::int64_t left, std::int64_t right, const std::string& argument);

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  void push_back(std::int64_t dim);                          // throws limit_exceeded beyond kMaxRank
  std::int64_t elements(const std::string& argument) const;  // checked product; 1 for rank 0
  std::string to_string() const;                             // "{2, 60, 512}"
  bool operator==(const Shape& other) const;
  bool operator!=(const Shape& other) const { return !(*this == other); }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

struct TensorView {
  Dtype dtype = Dtype::f32;
  Shape shape;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// Throws invalid_argument naming `argument` unless the
// view has exactly the bytes of its shape and dtype.
void check_bytes(const TensorView& view, const std::string& argument);

}  // namespace exphil::core
