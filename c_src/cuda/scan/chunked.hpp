// The plan for kernels/scan/chunked.cu, which scans parallel in time: how a problem is cut into
// chunks, tiles and blocks. Pure functions of shape, device and tuning; any thread.
//
// What may change the bits of a result (the steps of a chunk, the chunks of a tile) depends on state, dtype
// and options alone, never on the batch; width, groups and times cannot change them and are chosen with the
// batch in view.
#pragma once

#include <cstddef>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_cache.hpp"
#include "cuda/scan/plan.hpp"

namespace exphil::cuda {

// lanes and per_lane of the plan mean nothing here.
ScanPlan plan_chunked(const core::ScanShape& problem, const DeviceProperties& device,
                      const ScanTuning& tuning = {});

std::size_t chunked_shared_bytes(const core::ScanShape& problem, const ScanPlan& plan);

KernelSpec chunked_kernel_spec(const core::ScanShape& problem, const ScanPlan& plan);

}  // namespace exphil::cuda
