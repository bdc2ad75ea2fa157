// What a kernel of the selective scan is to its launcher (forward.hpp): whether it takes a scan, and how it
// is launched. Also what the kernels' plans share. Pure functions of shape, device and tuning; any thread.
//
// What may change the bits of a result (the kernel, the steps of a chunk) depends on seq, dim, state, dtype,
// options, alignment and the device alone, never on the batch. What cannot (the width of a block, how many
// blocks there are) is chosen by estimated time with the batch in view. A sequence therefore gets the same
// bits whatever else is in the batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_spec.hpp"
#include "cuda/jit/launch.hpp"

namespace exphil::cuda {

// How the channels of a sequence are shared out. A span is a run of channels that share one group of b and
// one of c: blocks do not cross it.
struct ChannelCut {
  std::int64_t span_channels = 1, spans = 1, blocks_per_span = 1;
  std::int64_t blocks() const { return spans * blocks_per_span; }
};

struct LaunchPlan {
  KernelSpec spec;
  ChannelCut cut;
  int cluster = 1;     // blocks that share a cut's block of channels
  int directions = 1;  // 2 where both are scanned
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
  // Of a scan that it takes. tuning: null, or this kernel's own. Throws limit_exceeded where no way to cut
  // the scan fits the device.
  LaunchPlan (*plan)(const core::ScanShape& shape, const DeviceProperties& device, const ScanTuning* tuning);
};

// What a benchmark or a test forces: this kernel, and of its plan what a derived struct says. A field of 0
// leaves the choice to the plan. Each kernel's header has its own.
struct ScanTuning {
  const ScanKernel* kernel;
};

template <class KernelTuning>
KernelTuning tuning_or_default(const ScanTuning* tuning) {
  return tuning == nullptr ? KernelTuning() : static_cast<const KernelTuning&>(*tuning);
}

// Appends what every kernel is told of the shape: STATE, ELEMENT, DISCRETIZATION and the
// options.
void add_scan_defines(const core::ScanShape& shape, std::vector<std::string>* defines);

// Whether b and c can be copied four elements at a time.
bool has_vector_rows(const core::ScanShape& shape);

// Channels that share one group of b and one of c.
std::int64_t span_of(const core::ScanShape& shape);
// For blocks of `per_block` channels.
ChannelCut cut_channels(const core::ScanShape& shape, std::int64_t per_block);

// Elements of x, dt and z that one copy takes, 16 bytes at the most: as many as alignment, a span's channels
// and the channels of a block allow.
int copy_width(const core::ScanShape& shape, std::int64_t block_channels);

int directions_of(const core::ScanShape& shape);

// True where a warp scans all of time, step by step: where that is asked for, where automatic means it, and
// where the chunked kernel could not count the scan's steps and bytes. Independent of the batch.
bool scans_sequentially(const core::ScanShape& shape);

}  // namespace exphil::cuda
