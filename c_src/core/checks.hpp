// Checks of tensors that the operators share. Each throws invalid_argument with what was expected and what
// was given, unless it says otherwise. Used by core/scan, core/ssd and core/recurrent. Pure functions; any
// thread.
#pragma once

#include <string>

#include "core/tensor.hpp"

namespace exphil::core {

[[noreturn]] void wrong_shape(const TensorView& view, const std::string& name, const std::string& expected);

// axes: "{batch, seq, dim}", for the message.
void require_shape(const TensorView& view, const std::string& name, const Shape& expected,
                   const std::string& axes);

// why: " like x", or "".
void require_dtype(const TensorView& view, const std::string& name, Dtype expected, const std::string& why);

// Throws limit_exceeded: "dim of x is 20; the limit is 10".
void require_axis_limit(std::int64_t size, std::int64_t limit, const std::string& name,
                        const std::string& axis);

}  // namespace exphil::core
