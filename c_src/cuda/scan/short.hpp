// The plan for kernels/scan/short.cu, where a cluster of blocks takes a whole short sequence at
// once: which scans it takes, and how many warps stand side by side. Pure functions of shape, device and
// tuning; any thread.
//
// Whether the kernel is taken changes the bits of a result, and depends on seq, dim, state, dtype, options,
// alignment and the device alone, never on the batch. The width of a block cannot change them.
#pragma once

#include <cstddef>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_cache.hpp"
#include "cuda/scan/plan.hpp"

namespace exphil::cuda {

bool scans_short(const core::ScanShape& problem, const DeviceProperties& device);

// Of a scan that scans_short takes. Of the plan, only groups, parts, split, min_blocks and the spans mean
// something here.
ScanPlan plan_short(const core::ScanShape& problem, const DeviceProperties& device,
                    const ScanTuning& tuning = {});

std::size_t short_shared_bytes(const core::ScanShape& problem, const ScanPlan& plan);
KernelSpec short_kernel_spec(const core::ScanShape& problem, const ScanPlan& plan);

}  // namespace exphil::cuda
