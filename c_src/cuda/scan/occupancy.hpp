// The occupancy of a launch, and the cheapest of several plans: shared by the cost models of the scan
// kernels. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Not below `value`.
constexpr int next_power_of_two(std::int64_t value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}

// Blocks with that much shared memory that fit on a multiprocessor; 0 where not even one fits.
int blocks_by_shared(const DeviceProperties& device, std::size_t shared_bytes);

// The most shared memory per block with which `blocks` of them fit on a multiprocessor.
std::size_t shared_for_blocks(const DeviceProperties& device, int blocks);

struct Occupancy {
  double resident = 1;  // blocks on a multiprocessor at a time
  double warps = 1;     // on one of its four schedulers
  double waves = 1;     // rounds until every block has run
};

// fitting: blocks that fit on a multiprocessor; at_once: blocks that fit on the device.
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
