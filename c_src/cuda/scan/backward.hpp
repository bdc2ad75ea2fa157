// The gradient of the selective scan on device memory. Everything that takes it on a GPU ends here:
// run_scan_grad (host tensors), the benchmarks, and whoever has device memory of its own. The context must be
// current (ContextGuard). Any thread.
//
// What may change the bits of a sequence's own gradients (x, dt, b, c, z, the initial state) depends on seq,
// dim, state, dtype, options and the device alone, never on the batch. Sums over channels, time and batch
// have an order that shapes decide: the same bits in every run.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/scan/kernel.hpp"
#include "kernels/scan/backward_arguments.cuh"

namespace exphil::cuda {

// What a benchmark or a test forces of the diagonal kernel's plan; 0 leaves the choice to the plan.
struct BackwardTuning {
  int channels = 0;    // neighbouring channels of a lane: changes bits
  int segment = 0;     // steps of a segment: changes bits
  int warps = 0;       // of a block: changes bits
  int tiles = 0;       // tiles of channels that a block takes: changes bits
  int steps = 0;       // of a piece of a segment, in registers
  int min_blocks = 0;  // of a multiprocessor: launch bounds the kernel is compiled for
  int per_lane = 0;    // states of a lane, of one channel: changes bits
};

// Queues the gradient on `stream` and returns: never synchronises, never allocates device memory. `shape` is
// that of core::gradient_call: what is to be computed has an address. scratch: scan_gradient_scratch bytes,
// aligned to 256, in use until the stream has got here. Throws invalid_argument naming an operand whose
// address is null or less aligned than the shape promises, limit_exceeded, compile_failed, device_lost.
void enqueue_scan_gradient(Context& context, CUstream stream, const core::ScanShape& shape,
                           const core::ScanOperands<CUdeviceptr>& on_device, CUdeviceptr scratch,
                           const BackwardTuning& tuning = {});

// In two halves, for some steps of a sequence whose other steps other devices have (time_parts.hpp). Both are
// called with the same arguments, whose shape has initial_state and d_final_state, and more than
// kLongestSegment steps.
//
// The first: what each segment does by itself, and `totals`: what all do. It reads neither of the two states.
struct GradientTotals {
  CUdeviceptr decay = 0, end = 0, start = 0;  // as BackwardTotalsArguments
};
void enqueue_gradient_totals(Context& context, CUstream stream, const core::ScanShape& shape,
                             const core::ScanOperands<CUdeviceptr>& on_device, CUdeviceptr scratch,
                             const GradientTotals& totals);
// The second: the gradients.
void enqueue_gradient_after_totals(Context& context, CUstream stream, const core::ScanShape& shape,
                                   const core::ScanOperands<CUdeviceptr>& on_device, CUdeviceptr scratch);

// Steps. A sequence of more has several segments.
inline constexpr int kLongestSegment = 64;

// Bytes of device memory beside the operands.
std::size_t scan_gradient_scratch(const core::ScanShape& shape, const DeviceProperties& device,
                                  const BackwardTuning& tuning = {});

// Compiles and loads what enqueue_scan_gradient of this shape needs. Throws compile_failed.
void prepare_scan_gradient(Context& context, const core::ScanShape& shape, const BackwardTuning& tuning = {});

// ---- without a device: for tests and tools ----

struct BackwardStage {
  KernelSpec spec;
  Dim3 grid, block;
  std::size_t shared_bytes = 0;
};

struct BackwardPlan {
  std::vector<BackwardStage> stages;  // one after another; the sums of rows follow
  // Instead of all but the first stage: what all segments do together. Where there are several segments.
  std::optional<BackwardStage> totals;
  ChannelCut cut;             // its blocks are the parts of sums over channels
  std::int64_t segments = 1;  // of time, with a checkpoint before each
  // What each kernel leaves of its sums over time: a row of a sequence for each segment, which is where its
  // checkpoint was, or one row of a sequence.
  bool sums_in_checkpoints = true;
};

struct BackwardKernel {
  const char* name;
  bool (*takes)(const core::ScanShape& shape, const DeviceProperties& device);
  BackwardPlan (*plan)(const core::ScanShape& shape, const DeviceProperties& device,
                       const BackwardTuning& tuning);
};

extern const BackwardKernel kDiagonalBackward;  // parallel in time
extern const BackwardKernel kMatrixBackward;    // a full matrix A, step by step

// The kernels in order of preference: a gradient is taken by the first that takes it. A new kernel is a file,
// a line here and one in variants.cpp.
inline constexpr const BackwardKernel* kBackward[] = {&kDiagonalBackward, &kMatrixBackward};

BackwardPlan plan_scan_gradient(const core::ScanShape& shape, const DeviceProperties& device,
                                const BackwardTuning& tuning = {});

// As the x axis of a grid has it. Throws limit_exceeded.
unsigned gradient_blocks(std::int64_t blocks);

// The stage behind those of a plan.
KernelSpec row_sums_spec();

}  // namespace exphil::cuda
