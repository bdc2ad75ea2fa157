#include "nif/frames.hpp"

#include "core/finite.hpp"

namespace exphil::nif {

using core::ErrorKind;
using core::fail;

std::size_t f32_bytes(std::int64_t rows, std::int64_t columns, const char* argument) {
  const std::int64_t floats = core::checked_multiply(rows, columns, argument);
  return static_cast<std::size_t>(core::checked_multiply(floats, sizeof(float), argument));
}

Frames frames_of(const core::TensorView& view, const char* argument) {
  if (view.dtype != core::Dtype::f32) {
    fail(ErrorKind::invalid_argument, argument, argument, " must have the type f32, got ",
         core::dtype_name(view.dtype));
  }
  Frames frames;
  frames.data = static_cast<const float*>(view.data);
  frames.floats = static_cast<std::int64_t>(view.bytes / sizeof(float));
  frames.is_tensor = true;
  frames.shape = view.shape;
  return frames;
}

Frames Decoder<Frames>::decode(Call& call, Term term, const char* argument) {
  ErlNifBinary binary;
  if (!enif_inspect_binary(call.env(), term, &binary)) {
    if (!enif_is_tuple(call.env(), term)) {
      fail_decode(call, term, argument, "a binary of f32 or a tensor {:f32, shape, binary}");
    }
    return frames_of(Decoder<core::TensorView>::decode(call, term, argument), argument);
  }
  if (binary.size % sizeof(float) != 0) {
    fail(ErrorKind::invalid_argument, argument, argument,
         " must be a binary of whole f32 (4 bytes each), got ", binary.size, " bytes");
  }
  Frames frames;
  frames.data = static_cast<const float*>(call.aligned(binary.data, binary.size, alignof(float)));
  frames.floats = static_cast<std::int64_t>(binary.size / sizeof(float));
  return frames;
}

void Frames::require_shape(const core::Shape& expected, const char* argument) const {
  if (is_tensor && shape != expected) {
    fail(ErrorKind::invalid_argument, argument, argument, " must have the shape ", expected.to_string(),
         ", got ", shape.to_string());
  }
  const std::int64_t needed = expected.elements(argument);
  if (floats != needed) {
    fail(ErrorKind::invalid_argument, argument, argument, " of shape ", expected.to_string(), " needs ",
         needed * 4, " bytes of f32, got ", floats * 4);
  }
}

void Frames::require(const core::Shape& expected, const char* argument) const {
  require_shape(expected, argument);
  core::require_finite(data, floats, expected[expected.rank() - 1], argument);
}

std::int64_t Frames::require_rows(std::int64_t d_input, const char* argument) const {
  if (is_tensor) {
    if (shape.rank() != 2 || shape[1] != d_input) {
      fail(ErrorKind::invalid_argument, argument, argument, " must have the shape {seq, ", d_input, "}, got ",
           shape.to_string());
    }
  } else if (floats % d_input != 0) {
    fail(ErrorKind::invalid_argument, argument, argument, " must be whole frames of ", d_input * 4,
         " bytes ({seq, ", d_input, "} of f32), got ", floats * 4, " bytes");
  }
  core::require_finite(data, floats, d_input, argument);
  return floats / d_input;
}

Term Frames::answer(Call& call, const core::Shape& answer_shape, Term binary) const {
  return is_tensor ? encode_tensor(call, core::Dtype::f32, answer_shape, binary) : binary;
}

}  // namespace exphil::nif
