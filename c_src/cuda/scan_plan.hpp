// How a selective scan is cut for a device: which kernel variant, how many lanes to a channel, how many warps
// of a block side by side in channels and in time. Pure functions of shape, device and tuning; any thread.
//
// What may change the bits of a result (the algorithm, the steps of a chunk) depends on seq, dim, state,
// dtype and options alone, never on the batch. What cannot (lanes, groups, times: see
// kernels/selective_scan_tile.cuh) is chosen by estimated time with the batch in view. A sequence therefore
// gets the same bits in any company.
#pragma once

#include <cstdint>

#include "core/scan_problem.hpp"
#include "cuda/context.hpp"
#include "cuda/kernel_cache.hpp"
#include "kernels/selective_scan_arguments.cuh"

namespace exphil::cuda {

// What a benchmark or a test may force; 0 leaves the choice to plan_scan.
struct ScanTuning {
  int lanes = 0;   // of a channel: a power of two
  int groups = 0;  // warps of a block side by side in channels
  int times = 0;   // and in time (chunked)
  int steps = 0;   // of a chunk: changes bits
  int keep_input = -1;
  int wide = -1;                        // 0: never the wide kernel (scan_wide.hpp); changes bits
  int max_threads = 0, min_blocks = 0;  // launch bounds the kernel is compiled for
};

struct ScanPlan {
  bool sequential = true;
  int lanes = 1, per_lane = 1, steps = 16;
  bool keep_input = false;
  int groups = 1, times = 1;
  int max_threads = 256, min_blocks = 2;
  // Channels that share one group of b and one of c, and how many blocks take them.
  std::int64_t span_channels = 1, spans = 1, blocks_per_span = 1;
  std::int64_t blocks_per_batch() const { return spans * blocks_per_span; }
};

int element_number(core::Dtype dtype);  // ELEMENT in the kernels

// True where automatic means one warp walking all of time. Independent of the batch.
bool scans_sequentially(const core::ScanProblem& problem);

ScanPlan plan_scan(const core::ScanProblem& problem, const DeviceProperties& device,
                   const ScanTuning& tuning = {});

// The shared memory that the plan's kernel lays out.
scan::Layout scan_layout(const core::ScanProblem& problem, const ScanPlan& plan);

// The variant of selective_scan.cu that carries out `plan`. vector_rows: b and c may be copied in pieces of
// four elements.
KernelSpec scan_kernel_spec(const core::ScanProblem& problem, const ScanPlan& plan, bool vector_rows,
                            bool write_states);

}  // namespace exphil::cuda
