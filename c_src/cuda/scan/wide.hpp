// The plan for kernels/scan/wide.cu, where a warp walks all of time: which scans it takes, and how
// their channels are cut. Pure functions of shape, device and tuning; any thread.
//
// Whether the kernel is taken may change the bits of a result, and depends on seq, dim, state, dtype, options
// and alignment alone, never on the batch. Steps, groups and stages cannot change them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_cache.hpp"
#include "cuda/scan/plan.hpp"

namespace exphil::cuda {

// Whether the scan is one that the wide kernel does: a walk (scans_sequentially) of real states in fours, an
// even number of channels to a group.
bool scans_wide(const core::ScanShape& problem);

// Of a scan that scans_wide takes. Of the plan, only groups, steps, buffers (stages of the ring), min_blocks
// and the spans mean something here.
ScanPlan plan_wide(const core::ScanShape& problem, const DeviceProperties& device,
                   const ScanTuning& tuning = {});

std::size_t wide_shared_bytes(const core::ScanShape& problem, const ScanPlan& plan);
KernelSpec wide_kernel_spec(const core::ScanShape& problem, const ScanPlan& plan);

}  // namespace exphil::cuda
