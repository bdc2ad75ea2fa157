// The selective scan on device memory, for every caller:
// run_scan (host tensors), the benchmarks, and xla/. The
// context must be current (ContextGuard). Any thread.
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
// kernel unless prepare_scan did. The tensors are row-major device memory with the alignment stated in
// `shape`. Does nothing for an empty batch or dim. Throws invalid_argument naming an operand whose address is
// null or less aligned, compile_failed, device_lost.
void enqueue_scan(Context& context, CUstream stream, const core::ScanShape& shape,
                  const core::ScanOperands<CUdeviceptr>& on_device, const ScanTuning* tuning = nullptr);

// Compiles and loads the kernel of enqueue_scan for this shape. Throws compile_failed.
void prepare_scan(Context& context, const core::ScanShape& shape, const ScanTuning* tuning = nullptr);

// ---- without a device: for tests and tools ----

// The kernels in order of preference: the first that supports a scan runs it. A new kernel needs a file, a
// line here and one in variants.cpp.
inline constexpr const ScanKernel* kForward[] = {
    &kShortScan,    // short sequences of few channels, on a device with clusters
    &kChunkedScan,  // all others that are parallel in time
    &kWideScan,     // sequential in time, pairs of channels, real states in fours
    &kMatrixScan,   // a full matrix A
    &kGeneralScan,  // everything else
};

// How the scan is launched: by the kernel that tuning names, else by the first of kForward that supports it.
// Throws unsupported where the named kernel does not.
LaunchPlan plan_scan(const core::ScanShape& shape, const DeviceProperties& device,
                     const ScanTuning* tuning = nullptr);

// One launch of a plan, for a slice of the batch.
struct ScanLaunch {
  Dim3 grid;
  scan::Arguments arguments{};
};
// More than one only where the batch exceeds the limit of one grid. None where there is nothing to do.
std::vector<ScanLaunch> scan_launches(const LaunchPlan& plan, const core::ScanShape& shape,
                                      const core::ScanOperands<CUdeviceptr>& on_device = {});

}  // namespace exphil::cuda
