// A frame of a batch through layers with a cell that recalls its state, in one launch
// (kernels/policy/batch_frame.cu). Used by cuda/policy/rows.cpp.
#pragma once

#include <optional>

#include "cuda/policy/dims.hpp"
#include "cuda/policy/frame_launch.hpp"
#include "cuda/policy/tuning.hpp"
#include "kernels/policy/batch_frame_layout.cuh"

namespace exphil::cuda {

KernelSpec batch_frame_kernel(const PolicyDims& dims, int cell, const policy::FrameShape& shape);
// That of the cell, where a device of this kind may have it: with the largest tiles that fit.
std::optional<policy::FrameShape> batch_frame_shape(const DeviceProperties& device, const PolicyDims& dims,
                                                    const PolicyTuning& tuning, int cell);
std::optional<FrameLaunch> find_batch_frame(Context& context, const PolicyDims& dims,
                                            const PolicyTuning& tuning, int cell);

}  // namespace exphil::cuda
