// Starts a selective scan whose tensors are on the device. Used by run_scan and by
// the benchmark. Asynchronous on `stream`; the context must be current (ContextGuard). Any thread.
#pragma once

#include <cuda.h>

#include <vector>

#include "core/scan/problem.hpp"
#include "cuda/device/context.hpp"
#include "cuda/scan/plan.hpp"

namespace exphil::cuda {

// The structs hold device addresses, of the alignment that an allocation has where rows allow it: pieces of
// 16 bytes are used where a tensor's address and rows are multiples of them.
void launch_scan(Context& context, CUstream stream, const core::ScanProblem& on_device,
                 const core::ScanOutputs& on_device_outputs, const ScanTuning& tuning = {});

// One launch as launch_scan makes it: for tests and tools without a device.
struct ScanLaunch {
  KernelSpec spec;
  unsigned grid_x = 1, grid_y = 1;
  unsigned block_y = 1, block_z = 1;  // block_x is 32
  std::size_t shared_bytes = 0;
  scan::Arguments arguments{};
};
// Several only where the batch is beyond one grid; all of the same kernel. None where there is nothing to do.
std::vector<ScanLaunch> scan_launches(const DeviceProperties& device, const core::ScanProblem& problem,
                                      const core::ScanOutputs& outputs, const ScanTuning& tuning = {});

}  // namespace exphil::cuda
