// One CUDA device for this library: its primary context (shared with EXLA and everything else in the
// process), memory pools, streams and compiled kernels. Retained once and never released, because another
// library may use it. Every member is safe from any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <string>

#include "cuda/device/doorbell.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/device/memory.hpp"
#include "cuda/device/stream.hpp"
#include "cuda/jit/kernel_cache.hpp"

namespace exphil::cuda {

// The oldest devices the kernels are written for: Turing.
inline constexpr int kOldestArchitecture = 75;

struct DeviceProperties {
  int index = 0;
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  int max_shared_per_block = 0;  // opt-in maximum, bytes
  int l2_bytes = 0;
  std::size_t total_memory = 0;
  int driver_version = 0;                                                  // as cuDriverGetVersion: 13000
  int architecture() const { return compute_major * 10 + compute_minor; }  // 90
};

// Both call only the driver and create no context. Throw backend_unavailable.
int device_count();
DeviceProperties query_device(int device);  // throws for a device that does not exist
// Throws backend_unavailable for a device older than kOldestArchitecture.
void require_supported(const DeviceProperties& properties);

// "CUDA_ERROR_NOT_READY (600): device not ready".
std::string describe_result(CUresult result);

class Context {
 public:
  // The device's context, opened on first use. Throws backend_unavailable with the reason (no driver, no
  // NVRTC, no device, too old).
  static std::shared_ptr<Context> open(int device);

  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DeviceProperties& properties() const { return properties_; }
  CUcontext handle() const { return handle_; }
  DevicePool& device_pool() { return *device_pool_; }
  PinnedPool& pinned_pool() { return *pinned_pool_; }
  StreamPool& streams() { return *streams_; }
  KernelCache& kernels() { return *kernels_; }
  ArmedSlot& armed() { return armed_; }  // which launch of this device waits on it

  // Throws for anything but CUDA_SUCCESS, with the call's name and the error's name and number. A sticky
  // error (illegal address, lost device, ...) marks the context lost.
  void check(CUresult result, const char* call) {
    if (result != CUDA_SUCCESS) fail_call(result, call);
  }
  // For destructors: marks the context lost where the error is sticky, and does not throw.
  void note(CUresult result, const char* call) noexcept;
  // Zeroes memory that no work uses yet, and waits.
  void clear(const DeviceBuffer& memory);
  // Throws device_lost if the context is lost.
  void require_alive() const {
    if (lost()) fail_lost();
  }
  bool lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  explicit Context(int device);
  [[noreturn]] void fail_call(CUresult result, const char* call);
  [[noreturn]] void fail_lost() const;
  void mark_lost(CUresult result, const char* call);

  DeviceProperties properties_;
  CUcontext handle_ = nullptr;
  std::atomic_flag reason_claimed_ = ATOMIC_FLAG_INIT;
  std::string lost_reason_;  // written once, by the thread that claimed it, before lost_ is set
  std::atomic<bool> lost_{false};
  ArmedSlot armed_;
  std::unique_ptr<DevicePool> device_pool_;
  std::unique_ptr<PinnedPool> pinned_pool_;
  std::unique_ptr<StreamPool> streams_;
  std::unique_ptr<KernelCache> kernels_;
};

// Makes the context current for a scope and restores the previous one: EXLA may share the thread. Throws
// device_lost if the context is lost. Every public call of cuda/ begins with one. Guards nest; each must be
// destroyed on the thread that created it.
class ContextGuard {
 public:
  explicit ContextGuard(Context& context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
};

}  // namespace exphil::cuda
