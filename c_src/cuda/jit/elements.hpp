// The types of tensors as the kernels number them. Pure functions; any thread.
#pragma once

#include "core/tensor.hpp"

namespace exphil::cuda {

// device::Element of kernels/common/device_math.cuh.
inline int element_of(core::Dtype dtype) {
  return dtype == core::Dtype::f32 ? 0 : dtype == core::Dtype::f16 ? 1 : 2;
}

}  // namespace exphil::cuda
