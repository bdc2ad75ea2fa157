// Checks of tensors that the operators share. Each throws invalid_argument with what was expected and what
// was given. Used by core/scan and core/recurrent. Pure functions; any thread.
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

}  // namespace exphil::core
