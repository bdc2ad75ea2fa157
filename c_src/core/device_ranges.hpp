// Arguments of a call whose elements are in a device's memory instead of host memory. validate functions read
// no element, so they take the addresses as any others; a call carries its ranges to the backend, which
// copies from them. An address of host memory is in none of them: the host and all devices share one address
// space. Callers: nif/ (from Elixir), cuda/device/upload. Plain data; the caller keeps the memory until the
// call returns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace exphil::core {

struct DeviceRange {
  std::string argument;  // for errors
  const void* data = nullptr;
  std::size_t bytes = 0;  // that are read
};

using DeviceRanges = std::vector<DeviceRange>;

// Whether the tensor that begins at `data` or in whose middle `data` is has its elements on a device.
inline bool is_in(const DeviceRanges& ranges, const void* data) {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  return std::any_of(ranges.begin(), ranges.end(), [at](const DeviceRange& range) {
    const auto begin = reinterpret_cast<std::uintptr_t>(range.data);
    return at >= begin && at < begin + range.bytes;
  });
}

}  // namespace exphil::core
