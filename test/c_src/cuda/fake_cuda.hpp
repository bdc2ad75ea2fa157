// What tests may ask of the fake driver (fake_cuda.cpp) beside the driver API itself. Found by dlsym.
#pragma once

#include <cstddef>
#include <cstdint>

// Bytes of "device" memory; pinned memory is bounded by the same number.
inline constexpr std::size_t kFakeMemory = std::size_t{64} << 20;

struct FakeCuda {
  // The call named `call` (unversioned) answers `result`, once, after `skip` good answers.
  void (*fail_next)(const char* call, int result, int skip);
  std::int64_t (*calls)(const char* call);  // made so far
  int (*context_depth)();                   // pushed on this thread
  std::size_t (*device_bytes)();            // allocated now
  std::size_t (*pinned_bytes)();
  int (*streams)();  // alive
  int (*events)();
};
