// Observations of the policy calls: a bare f32 binary, or a tensor {:f32, shape, binary}. The answer has the
// same form. Every frame of a session or a window is checked here, on either backend. Used by session.cpp and
// policy.cpp; plain data of one call.
#pragma once

#include "nif/resources.hpp"

namespace exphil::nif {

struct Frames {
  const float* data = nullptr;
  std::int64_t floats = 0;
  bool is_tensor = false;
  core::Shape shape;  // where is_tensor

  // Throws invalid_argument unless this is a tensor of shape `expected`, or a binary with as many floats.
  void require_shape(const core::Shape& expected, const char* argument) const;
  // The same for observations, each a row of the last axis, which must be finite, too: a carried state would
  // not be finite ever after.
  void require(const core::Shape& expected, const char* argument) const;
  // seq of {seq, d_input}, computed from the size of a binary. Throws likewise.
  std::int64_t require_rows(std::int64_t d_input, const char* argument) const;
  // `binary` itself, or {:f32, shape, binary}.
  Term answer(Call& call, const core::Shape& shape, Term binary) const;
};

// Bytes of so many rows. Throws limit_exceeded, which names the argument.
std::size_t f32_bytes(std::int64_t rows, std::int64_t columns, const char* argument);

// The tensor as Frames, with its type checked.
Frames frames_of(const core::TensorView& view, const char* argument);

template <>
struct Decoder<Frames> {
  static Frames decode(Call& call, Term term, const char* argument);
};

}  // namespace exphil::nif
