// How a launch's blocks share a device, and the cheapest of several ways to cut a scan: what the cost models
// of the scan's kernels have in common. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Blocks with so much shared memory that fit a multiprocessor; 0 where one does not quite.
int blocks_by_shared(const DeviceProperties& device, std::size_t shared_bytes);

// The most shared memory that a block may have where `blocks` of them are to fit a multiprocessor.
std::size_t shared_for_blocks(const DeviceProperties& device, int blocks);

struct Occupancy {
  double resident = 1;  // blocks of a multiprocessor at a time
  double warps = 1;     // of one of its four schedulers
  double waves = 1;     // until every block has run
};

// fitting: blocks that a multiprocessor takes; at_once: blocks that the device takes.
Occupancy occupancy(const DeviceProperties& device, double blocks, int fitting, double at_once,
                    int warps_per_block);

[[noreturn]] void fail_does_not_fit(const core::ScanShape& shape, const DeviceProperties& device);

// The cut with the fewest estimated cycles, the first of equals. Throws limit_exceeded where there is none.
template <class Cut, class Estimate>
Cut cheapest(const core::ScanShape& shape, const DeviceProperties& device, const std::vector<Cut>& cuts,
             const Estimate& cycles_of) {
  const Cut* best = nullptr;
  double fewest = std::numeric_limits<double>::infinity();
  for (const Cut& cut : cuts) {
    const double cycles = cycles_of(cut);
    if (cycles < fewest) fewest = cycles, best = &cut;
  }
  if (best == nullptr) fail_does_not_fit(shape, device);
  return *best;
}

}  // namespace exphil::cuda
