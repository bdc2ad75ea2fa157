#include "cuda/scan/occupancy.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace exphil::cuda {
namespace {

// Bytes of shared memory that the system reserves on a multiprocessor for each block.
constexpr int kReservedShared = 1024;

}  // namespace

int blocks_by_shared(const DeviceProperties& device, std::size_t shared_bytes) {
  return device.max_shared_per_block / (static_cast<int>(shared_bytes) + kReservedShared);
}

std::size_t shared_for_blocks(const DeviceProperties& device, int blocks) {
  return static_cast<std::size_t>(device.max_shared_per_block + kReservedShared) /
             static_cast<std::size_t>(blocks) -
         kReservedShared;
}

Occupancy occupancy(const DeviceProperties& device, double blocks, int fitting, double at_once,
                    int warps_per_block) {
  const double multiprocessors = std::max(1, device.multiprocessors);
  Occupancy o;
  o.resident = std::min<double>(fitting, std::ceil(blocks / multiprocessors));
  o.warps = std::max(1.0, o.resident * warps_per_block / 4.0);
  o.waves = std::ceil(blocks / at_once);
  return o;
}

void fail_does_not_fit(const core::ScanShape& shape, const DeviceProperties& device) {
  core::fail(core::ErrorKind::limit_exceeded, "b", "a scan with state ", shape.state,
             " needs more shared memory than ", device.max_shared_per_block, " bytes a block");
}

}  // namespace exphil::cuda
