// Checks of the tensors that training takes. Used by training.cpp, loss.cpp and optimiser.cpp; pure
// functions.
#pragma once

#include "core/tensor.hpp"

namespace exphil::nif {

// Throws invalid_argument unless the tensor has this type and shape.
void require_tensor(const core::TensorView& view, core::Dtype dtype, const core::Shape& shape,
                    const char* argument);

// Whether it is f64. Throws invalid_argument unless it is that or f32.
bool is_double(const core::TensorView& view, const char* argument);

}  // namespace exphil::nif
