// A selective-scan kernel for its launcher (forward.hpp): whether it supports a scan, and its launch plan.
// Also code that the plans share. Pure functions of shape, device and tuning; any thread.
//
// Choices that may change the bits of a result (the kernel, the steps of a chunk) depend only on seq, dim,
// state, dtype, options, alignment and the device, never on the batch. Other choices (the width of a block,
// the number of blocks) minimise the estimated time and depend on the batch too. A sequence therefore gets
// the same bits whatever else is in the batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_spec.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/scan/arguments.cuh"

namespace exphil::cuda {

// How the channels of a sequence are split into blocks. A span is a run of channels that share one group of b
// and one of c; no block crosses its end.
struct ChannelCut {
  std::int64_t span_channels = 1, spans = 1, blocks_per_span = 1;
  std::int64_t blocks() const { return spans * blocks_per_span; }
};

struct LaunchPlan {
  KernelSpec spec;
  ChannelCut cut;
  int cluster = 1;     // blocks of a cluster, which share the same channels
  int directions = 1;  // 2 where both directions are scanned
  Dim3 block;          // threads
  std::size_t shared_bytes = 0;

  std::int64_t blocks_per_sequence() const { return cut.blocks() * cluster; }
  Dim3 grid(std::int64_t sequences) const {
    return {static_cast<unsigned>(sequences * blocks_per_sequence()), static_cast<unsigned>(directions), 1};
  }
};

struct ScanTuning;

// One kernel of kernels/scan, in a file of its own.
struct ScanKernel {
  const char* name;
  bool (*takes)(const core::ScanShape& shape, const DeviceProperties& device);
  // The plan of a supported scan. tuning: null, or this kernel's own. Throws limit_exceeded where no plan
  // fits the device.
  LaunchPlan (*plan)(const core::ScanShape& shape, const DeviceProperties& device, const ScanTuning* tuning);
};

// Forces this kernel, and the fields that a derived struct adds, for a benchmark or a test. A field of 0
// leaves the choice to the plan. Each kernel's header declares its own.
struct ScanTuning {
  const ScanKernel* kernel;
};

template <class KernelTuning>
KernelTuning tuning_or_default(const ScanTuning* tuning) {
  return tuning == nullptr ? KernelTuning() : static_cast<const KernelTuning&>(*tuning);
}

// The arguments that follow from shape and cut, and the addresses of the operands among them.
scan::Arguments scan_arguments(const core::ScanShape& shape, const core::ScanOperands<CUdeviceptr>& on_device,
                               const ChannelCut& cut);

// Throws invalid_argument naming an operand whose address is null or less aligned than the shape promises.
void require_addresses(const core::ScanShape& shape, const core::ScanOperands<CUdeviceptr>& on_device);

// ELEMENT in the kernels.
int element_number(core::Dtype dtype);

// Appends the defines that every kernel needs:
// STATE, ELEMENT, DISCRETIZATION and the options.
void add_scan_defines(const core::ScanShape& shape, std::vector<std::string>* defines);

// Whether b and c can be copied four elements at a time.
bool has_vector_rows(const core::ScanShape& shape);

// Channels that share one group of b and one of c.
std::int64_t span_of(const core::ScanShape& shape);
// The cut for blocks of `per_block` channels.
ChannelCut cut_channels(const core::ScanShape& shape, std::int64_t per_block);

// Elements of x, dt and z per copy, at most 16 bytes: as many as the alignment, a span's channels and a
// block's channels allow.
int copy_width(const core::ScanShape& shape, std::int64_t block_channels);

int directions_of(const core::ScanShape& shape);

// True where a warp scans all of time, step by step: where the caller chose it, where automatic selects it,
// and where the chunked kernel cannot represent the scan's steps and bytes. Does not depend on the batch.
bool scans_sequentially(const core::ScanShape& shape);

}  // namespace exphil::cuda
