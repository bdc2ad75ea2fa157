// The controls of the fake driver (fake_cuda.cpp), beside the driver API itself. Found by dlsym.
#pragma once

#include <cstddef>
#include <cstdint>

// Bytes of each device's memory; pinned memory is bounded by the same number.
inline constexpr std::size_t kFakeMemory = std::size_t{64} << 20;

// For FakeCuda::delay.
inline constexpr std::int64_t kFakeHeld = -1;

// One launch as passed to the driver.
struct FakeLaunch {
  const char* function;  // its name in the module
  const char* image;     // the image that the module was loaded from, where it is a FakeImage; else null
  std::size_t image_bytes;
  unsigned grid[3], block[3];
  std::size_t shared_bytes;
  void** arguments;  // null: a launch that will wait for the host is about to come, and only has to be ready
};

// The fake NVRTC's (fake_nvrtc.cpp) output for a kernel: this header, then the text that says how to compile
// it.
struct FakeImage {
  char magic[8];
  std::uint64_t bytes;  // of the text
};
inline constexpr char kFakeImageMagic[8] = {'E', 'M', 'U', 'L', 'A', 'T', 'E', 'D'};

struct FakeCuda {
  // The call named `call` (unversioned) returns `result` once, after `skip` successful calls.
  void (*fail_next)(const char* call, int result, int skip);
  std::int64_t (*calls)(const char* call);  // made so far
  int (*context_depth)();                   // pushed on this thread
  std::size_t (*device_bytes)();            // allocated now, on all devices
  std::size_t (*pinned_bytes)();
  int (*streams)();  // alive
  int (*events)();
  // Called for every valid launch from now on, on the launching thread; its result is the launch's (a
  // CUresult). Null: kernels are not run. A launch of policy_step_armed is called for on another thread.
  void (*on_launch)(int (*callback)(const FakeLaunch& launch));
  // Of the later calls that do work (not free, destroy or pop), the one after `skip` successful ones returns
  // `result`, once. skip = -1: none does. Returns whether the last such failure has happened.
  bool (*fail_any)(int result, int skip);
  // Set by tests whose allocations fail: called with 1 and -1 around the fake driver's own work.
  void (*pause_failing)(int change);
  // From now on a policy's step of one agent (EXPHIL_NATIVE_POLICY=inline_obs=0) is replaced by a simple
  // one that costs next to nothing, and the callback is not called; a window answers zeros, and other kernels
  // do nothing.
  void (*simplify_steps)();
  // Every `every`-th such step is done this long after its launch, and all later work after it. 0: at once;
  // kFakeHeld: once a call of the driver waits for it.
  void (*delay)(std::int64_t microseconds, int every);
  // Launches of policy_step_armed whose wait for their observation was over.
  std::int64_t (*armed_timeouts)();
  // From now on every call that works on this device fails, as after an illegal address.
  void (*lose)(int device);
};
