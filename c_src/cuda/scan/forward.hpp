// The selective scan on device memory. Everything that scans on a GPU ends here: run_scan (host tensors), the
// benchmarks, and whoever has device memory of its own. The context must be current (ContextGuard). Any
// thread.
#pragma once

#include <cuda.h>

#include <vector>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/scan/chunked.hpp"
#include "cuda/scan/general.hpp"
#include "cuda/scan/kernel.hpp"
#include "cuda/scan/matrix.hpp"
#include "cuda/scan/short.hpp"
#include "cuda/scan/wide.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {

// Queues the scan on `stream` and returns: never synchronises, never allocates device memory. Compiles the
// kernel where prepare_scan has not. The tensors are row-major device memory with the alignment that `shape`
// promises; without a batch or channels there is nothing to do. Throws invalid_argument naming an operand
// whose address is null or less aligned than that, compile_failed, device_lost.
void enqueue_scan(Context& context, CUstream stream, const core::ScanShape& shape,
                  const core::ScanOperands<CUdeviceptr>& on_device, const ScanTuning* tuning = nullptr);

// Compiles and loads what enqueue_scan of this shape needs. Throws compile_failed.
void prepare_scan(Context& context, const core::ScanShape& shape, const ScanTuning* tuning = nullptr);

// ---- without a device: for tests and tools ----

// The kernels in order of preference: a scan is run by the first that takes it. A new kernel is a file, a
// line here and one in variants.cpp.
inline constexpr const ScanKernel* kForward[] = {
    &kShortScan,    // short sequences of few channels, on a device with clusters
    &kChunkedScan,  // all others that are parallel in time
    &kWideScan,     // sequential in time, pairs of channels, real states in fours
    &kMatrixScan,   // a full matrix A
    &kGeneralScan,  // everything else
};

// How the scan is launched: by the kernel that tuning names, else by the first of kForward that takes it.
// Throws unsupported where the named kernel does not take the scan.
LaunchPlan plan_scan(const core::ScanShape& shape, const DeviceProperties& device,
                     const ScanTuning* tuning = nullptr);

// One launch of a plan: some sequences of the batch.
struct ScanLaunch {
  Dim3 grid;
  scan::Arguments arguments{};
};
// Several only where the batch is beyond one grid. None where there is nothing to do.
std::vector<ScanLaunch> scan_launches(const LaunchPlan& plan, const core::ScanShape& shape,
                                      const core::ScanOperands<CUdeviceptr>& on_device = {});

}  // namespace exphil::cuda
