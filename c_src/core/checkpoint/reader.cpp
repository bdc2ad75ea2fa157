#include "core/checkpoint/reader.hpp"

#include <cmath>
#include <cstring>

#include "core/error.hpp"
#include "core/finite.hpp"
#include "core/half.hpp"
#include "core/work/background.hpp"

namespace exphil::core {

namespace {

// Values between two offers of the core: some 10 us.
constexpr std::int64_t kStretch = 1 << 13;

template <class... Parts>
[[noreturn]] void bad_source(const CheckpointReader::Source& source, const Parts&... parts) {
  fail(ErrorKind::invalid_checkpoint, source.argument, parts...);
}

// The file's bytes may be unaligned.
std::vector<float> widen(const TensorView& view, const std::string& name,
                         const CheckpointReader::Source& source) {
  const std::size_t count = view.bytes / dtype_size(view.dtype);
  const char* bytes = static_cast<const char*>(view.data);
  std::vector<float> values(count);
  if (view.dtype == Dtype::f32) {
    if (count > 0) std::memcpy(values.data(), bytes, view.bytes);
  } else if (view.dtype == Dtype::f16 || view.dtype == Dtype::bf16) {
    in_stretches(static_cast<std::int64_t>(count), kStretch, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        std::uint16_t half;
        std::memcpy(&half, bytes + 2 * i, sizeof half);
        values[i] = view.dtype == Dtype::f16 ? f16_to_f32(half) : bf16_to_f32(half);
      }
    });
  } else {
    bad_source(source, "tensor ", quote(name), " must be F32, F16 or BF16; got ", dtype_name(view.dtype));
  }
  return values;
}

}  // namespace

const TensorView& CheckpointReader::require(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) bad_source(source_, "tensor ", quote(name), " is missing from ", source_.name);
  return found->second;
}

const Shape& CheckpointReader::shape(const std::string& name, int rank, const std::string& axes) const {
  const Shape& shape = require(name).shape;
  if (shape.rank() != rank) {
    bad_source(source_, "tensor ", quote(name), " must have shape ", axes, "; got ", shape.to_string());
  }
  for (int axis = 0; axis < rank; ++axis) {
    if (shape[axis] < 1)
      bad_source(source_, "tensor ", quote(name), " has a zero-sized dimension: ", shape.to_string());
  }
  return shape;
}

void CheckpointReader::require_shape(const std::string& name, const Shape& expected,
                                     const std::string& axes) const {
  const Shape& shape = require(name).shape;
  if (shape != expected) {
    bad_source(source_, "tensor ", quote(name), " must have shape ", axes, " = ", expected.to_string(),
               "; got ", shape.to_string());
  }
}

std::vector<float> CheckpointReader::take(const std::string& name, const Shape& expected,
                                          const std::string& axes) {
  require_shape(name, expected, axes);
  taken_.insert(name);
  std::vector<float> values = widen(require(name), name, source_);
  check_finite(values, name, "");
  return values;
}

const float* CheckpointReader::take(const std::string& name, const Shape& expected, const std::string& axes,
                                    std::vector<float>* room) {
  const TensorView& view = require(name);
  const bool aligned = reinterpret_cast<std::uintptr_t>(view.data) % alignof(float) == 0;
  if (view.dtype != Dtype::f32 || !aligned) {
    *room = take(name, expected, axes);
    return room->data();
  }
  require_shape(name, expected, axes);
  taken_.insert(name);
  const auto* const values = static_cast<const float*>(view.data);
  check_finite(values, static_cast<std::int64_t>(view.bytes / sizeof(float)), name, "");
  return values;
}

const TensorView& CheckpointReader::take_as_it_is(const std::string& name, Dtype dtype, const Shape& expected,
                                                  const std::string& axes) {
  require_shape(name, expected, axes);
  const TensorView& view = require(name);
  if (view.dtype != dtype) {
    bad_source(source_, "tensor ", quote(name), " must be ", dtype_name(dtype), "; got ",
               dtype_name(view.dtype));
  }
  taken_.insert(name);
  return view;
}

void CheckpointReader::require_all_taken() const {
  for (const auto& item : tensors_) {
    if (taken_.count(item.first) == 0) {
      bad_source(source_, "tensor ", quote(item.first), " of shape ", item.second.shape.to_string(),
                 " is not part of ", source_.content);
    }
  }
}

void CheckpointReader::check_finite(const float* values, std::int64_t count, const std::string& name,
                                    const std::string& what) const {
  if (!check_finite_) return;
  in_stretches(count, kStretch, [&](std::int64_t begin, std::int64_t end) {
    if (all_finite(values + begin, end - begin)) return;
    for (std::int64_t i = begin; i < end; ++i) {
      if (std::isfinite(values[i])) continue;
      bad_source(source_, "tensor ", quote(name), " is not finite", what, ": element ", i, " is ", values[i],
                 source_.has_check_finite ? " (check_finite: false loads it all the same)" : "");
    }
  });
}

}  // namespace exphil::core
