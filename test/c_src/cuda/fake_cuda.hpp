// What tests may ask of the fake driver (fake_cuda.cpp) beside the driver API itself. Found by dlsym.
#pragma once

#include <cstddef>
#include <cstdint>

// Bytes of "device" memory; pinned memory is bounded by the same number.
inline constexpr std::size_t kFakeMemory = std::size_t{64} << 20;

// One launch, as the driver was asked for it.
struct FakeLaunch {
  const char* function;  // its name in the module
  const char* image;     // what the module was loaded from, where it is a FakeImage; else null
  std::size_t image_bytes;
  unsigned grid[3], block[3];
  std::size_t shared_bytes;
  void** arguments;
};

// What the fake NVRTC (fake_nvrtc.cpp) makes of a kernel: this, and then a shared object for the host.
struct FakeImage {
  char magic[8];
  std::uint64_t bytes;  // of the shared object
};
inline constexpr char kFakeImageMagic[8] = {'E', 'M', 'U', 'L', 'A', 'T', 'E', 'D'};

struct FakeCuda {
  // The call named `call` (unversioned) answers `result`, once, after `skip` good answers.
  void (*fail_next)(const char* call, int result, int skip);
  std::int64_t (*calls)(const char* call);  // made so far
  int (*context_depth)();                   // pushed on this thread
  std::size_t (*device_bytes)();            // allocated now
  std::size_t (*pinned_bytes)();
  int (*streams)();  // alive
  int (*events)();
  // Called for every good launch from now on, on the launching thread; its answer is the launch's (a
  // CUresult). Null: kernels are not run.
  void (*on_launch)(int (*callback)(const FakeLaunch& launch));
  // Of the calls from now on that do work (not those that free, destroy or pop), the one after `skip` good
  // ones answers `result`, once. skip = -1: none does. Answers whether the last such failure has happened.
  bool (*fail_any)(int result, int skip);
  // Set by tests whose allocations fail: called with 1 and -1 around what the fake driver does for itself.
  void (*pause_failing)(int change);
};
