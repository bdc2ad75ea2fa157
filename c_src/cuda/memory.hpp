// Device and pinned host memory from bounded pools, so that steady state allocates nothing. Buffers go back
// to their pool from any thread without touching the device (a free list under a mutex); the pools outlive
// them.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace exphil::cuda {

class Context;

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&&) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept;
  ~DeviceBuffer();

  CUdeviceptr address() const { return address_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(address_);
  }  // for kernel arguments only: not readable here
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return address_ != 0; }

 private:
  friend class DevicePool;
  class Impl;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;  // as asked for
  std::size_t block_ = 0;  // as allocated
  std::shared_ptr<Impl> owner_;
};

// Freed blocks wait for reuse, keyed by size class. A block may still be read by work in flight on the stream
// that used it last: users synchronise before they let a buffer go.
class DevicePool {
 public:
  explicit DevicePool(Context& context);
  ~DevicePool();
  // At least `bytes`, aligned to 256. On exhaustion trims the pool and tries again, then throws out_of_memory
  // saying how much was asked and how much is free.
  DeviceBuffer allocate(std::size_t bytes);
  std::size_t held_bytes() const;  // by live buffers
  void trim();                     // frees what waits

 private:
  std::shared_ptr<DeviceBuffer::Impl> impl_;
};

// Page-locked, device-mapped host memory.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&&) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&&) noexcept;
  ~PinnedBuffer();

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  CUdeviceptr device_address() const { return device_address_; }  // the same bytes, from a kernel
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class PinnedPool;
  class Impl;
  void* data_ = nullptr;
  CUdeviceptr device_address_ = 0;
  std::size_t bytes_ = 0, block_ = 0;
  std::shared_ptr<Impl> owner_;
};

class PinnedPool {
 public:
  PinnedPool(Context& context, std::size_t limit_bytes);
  ~PinnedPool();
  PinnedBuffer allocate(std::size_t bytes);      // throws out_of_memory beyond the limit
  PinnedBuffer try_allocate(std::size_t bytes);  // empty buffer beyond the limit: the caller copies instead

 private:
  std::shared_ptr<PinnedBuffer::Impl> impl_;
};

}  // namespace exphil::cuda
