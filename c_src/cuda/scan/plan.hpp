// How a selective scan is cut for a device: which kernel variant, how many lanes to a channel, how many warps
// of a block side by side in channels and in time. Pure functions of shape, device and tuning; any thread.
//
// What may change the bits of a result (the algorithm, the steps of a chunk) depends on seq, dim, state,
// dtype and options alone, never on the batch. What cannot (lanes, groups, times: see
// kernels/scan/general.cu) is chosen by estimated time with the batch in view. A sequence therefore
// gets the same bits in any company.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_cache.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {

// What a benchmark or a test may force; 0 leaves the choice to plan_scan.
struct ScanTuning {
  int groups = 0;      // warps of a block side by side in channels
  int times = 0;       // and in time (chunked)
  int steps = 0;       // of a chunk: changes bits
  int chunks = 0;      // of a tile: changes bits
  int together = 0;    // states that a lane scans at a time
  int slice = 0;       // states of b and c in shared memory at a time
  int split = 0;       // blocks of a cluster that share time
  int wide = -1;       // 0: never the wide kernel (wide.hpp); changes bits
  int whole = -1;      // 0: never the kernel of short scans (short.hpp); changes bits
  int min_blocks = 0;  // of a multiprocessor: launch bounds the kernel is compiled for
};

struct ScanPlan {
  bool sequential = true;
  int lanes = 1, per_lane = 1, steps = 16;
  int chunks = 1, together = 1, slice = 1, buffers = 2, split = 1;
  int groups = 1, parts = 1, times = 1;
  int max_threads = 256, min_blocks = 2;
  // Channels that share one group of b and one of c, and how many blocks take them.
  std::int64_t span_channels = 1, spans = 1, blocks_per_span = 1;
  std::int64_t blocks_per_batch() const { return spans * blocks_per_span; }
};

// Bytes of shared memory that the system takes from a multiprocessor for each block.
inline constexpr int kReservedShared = 1024;

int element_number(core::Dtype dtype);  // ELEMENT in the kernels
std::string define(const char* name, std::int64_t value);
// Appends what every kernel of a diagonal scan is told of the problem: STATE, ELEMENT, DISCRETIZATION and the
// options.
void add_problem_defines(const core::ScanShape& problem, std::vector<std::string>* defines);

// Whether b and c can be copied four elements at a time.
bool has_vector_rows(const core::ScanShape& problem);

// Channels that share one group of b and one of c: blocks do not cross such a span.
std::int64_t span_of(const core::ScanShape& problem);
// Fills span_channels, spans and blocks_per_span for blocks of `per_block` channels.
void cut_channels(const core::ScanShape& problem, std::int64_t per_block, ScanPlan* plan);

// Elements of x, dt and z that are copied together, 16 bytes at the most: as many as alignment, a span's
// channels and the `across` channels of a block allow.
int piece_of(const core::ScanShape& problem, const ScanPlan& plan, std::int64_t across);

// True where a warp walks all of time: where that is asked for, where automatic means it, and where the
// chunked kernel could not count the problem. Independent of the batch.
bool scans_sequentially(const core::ScanShape& problem);

// The walk of scan/general.cu, whatever scans_sequentially says.
ScanPlan plan_scan(const core::ScanShape& problem, const DeviceProperties& device,
                   const ScanTuning& tuning = {});

// The shared memory that the plan's kernel lays out.
scan::Layout scan_layout(const core::ScanShape& problem, const ScanPlan& plan);

// The variant of scan/general.cu that carries out `plan`.
KernelSpec scan_kernel_spec(const core::ScanShape& problem, const ScanPlan& plan);

}  // namespace exphil::cuda
