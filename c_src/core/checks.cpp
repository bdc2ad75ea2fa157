#include "core/checks.hpp"

#include "core/error.hpp"

namespace exphil::core {

void wrong_shape(const TensorView& view, const std::string& name, const std::string& expected) {
  fail(ErrorKind::invalid_argument, name, name, " must be ", expected, "; got shape ",
       view.shape.to_string());
}

void require_shape(const TensorView& view, const std::string& name, const Shape& expected,
                   const std::string& axes) {
  if (view.shape != expected) wrong_shape(view, name, axes + " = " + expected.to_string());
}

void require_dtype(const TensorView& view, const std::string& name, Dtype expected, const std::string& why) {
  if (view.dtype == expected) return;
  fail(ErrorKind::invalid_argument, name, name, " must be ", dtype_name(expected), why, "; got ",
       dtype_name(view.dtype));
}

void require_axis_limit(std::int64_t size, std::int64_t limit, const std::string& name,
                        const std::string& axis) {
  if (size <= limit) return;
  fail(ErrorKind::limit_exceeded, name, axis, " of ", name, " is ", size, "; the limit is ", limit);
}

}  // namespace exphil::core
