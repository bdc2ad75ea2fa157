// A frame of a batch through a network of scans in one launch (kernels/policy/scan_frame.cu). Used by
// cuda/policy/rows.cpp.
#pragma once

#include <optional>

#include "cuda/policy/dims.hpp"
#include "cuda/policy/frame_launch.hpp"
#include "cuda/policy/tuning.hpp"
#include "kernels/policy/scan_frame_layout.cuh"

namespace exphil::cuda {

KernelSpec scan_frame_kernel(const PolicyDims& dims, const policy::ScanFrameShape& shape);
// Where a device of this kind may have it: with the largest tiles that fit.
std::optional<policy::ScanFrameShape> scan_frame_shape(const DeviceProperties& device, const PolicyDims& dims,
                                                       const PolicyTuning& tuning);
std::optional<FrameLaunch> find_scan_frame(Context& context, const PolicyDims& dims,
                                           const PolicyTuning& tuning);

}  // namespace exphil::cuda
