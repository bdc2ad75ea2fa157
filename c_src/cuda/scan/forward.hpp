// The selective scan on device memory. Everything that scans on a GPU ends here: run_scan (host tensors), the
// benchmarks, and whoever has device memory of its own. The context must be current (ContextGuard). Any
// thread.
#pragma once

#include <cuda.h>

#include <vector>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/scan/plan.hpp"

namespace exphil::cuda {

// Queues the scan on `stream` and returns: never synchronises, never allocates device memory. Compiles the
// kernel where prepare_scan has not. The tensors are row-major device memory with the alignment that `shape`
// promises; without a batch or channels there is nothing to do. Throws invalid_argument naming an operand
// whose address is null or less aligned than that, compile_failed, device_lost.
void enqueue_scan(Context& context, CUstream stream, const core::ScanShape& shape,
                  const core::ScanOperands<CUdeviceptr>& on_device, const ScanTuning& tuning = {});

// Compiles and loads what enqueue_scan of this shape needs. Throws compile_failed.
void prepare_scan(Context& context, const core::ScanShape& shape, const ScanTuning& tuning = {});

// One launch as enqueue_scan makes it: for tests and tools without a device.
struct ScanLaunch {
  KernelSpec spec;
  unsigned grid_x = 1, grid_y = 1;
  unsigned block_y = 1, block_z = 1;  // block_x is 32
  std::size_t shared_bytes = 0;
  scan::Arguments arguments{};
};
// Several only where the batch is beyond one grid; all of the same kernel. None where there is nothing to do.
std::vector<ScanLaunch> scan_launches(const DeviceProperties& device, const core::ScanShape& shape,
                                      const core::ScanOperands<CUdeviceptr>& on_device = {},
                                      const ScanTuning& tuning = {});

}  // namespace exphil::cuda
