// Device and pinned host memory from bounded pools, so that nothing is allocated in steady state. A buffer
// returns to its pool from any thread without touching the device (a free list under a mutex). If the pool
// and its Context are gone, its memory is returned to the driver immediately.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda/device/pinned_shares.hpp"

namespace exphil::cuda {

class Context;

// A device address as the type that a kernel's arguments declare; not readable on the host.
template <class T>
T* as_pointer(CUdeviceptr address) {
  return reinterpret_cast<T*>(address);
}

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&&) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept;
  ~DeviceBuffer();

  CUdeviceptr address() const { return address_; }
  template <class T>
  T* as() const {
    return as_pointer<T>(address_);
  }
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return address_ != 0; }

 private:
  friend class DevicePool;
  class Impl;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;  // as requested
  std::size_t block_ = 0;  // as allocated
  std::shared_ptr<Impl> owner_;
};

// Freed blocks are kept for reuse, by size class. Work in flight on the block's last stream may still read
// it, so users must synchronise before they free a buffer.
class DevicePool {
 public:
  explicit DevicePool(Context& context);
  ~DevicePool();
  // At least `bytes` (0 gives a valid small buffer), aligned to 256, uninitialised. On exhaustion trims the
  // pool and tries again, then throws out_of_memory with the requested and free bytes.
  DeviceBuffer allocate(std::size_t bytes);
  std::size_t held_bytes() const;     // of allocated buffers
  std::size_t waiting_bytes() const;  // freed, kept for reuse: at most a quarter of the device after allocate
  void trim();                        // returns the free blocks to the driver

 private:
  Context& context_;
  std::shared_ptr<DeviceBuffer::Impl> impl_;
};

struct PinnedBlock {
  void* data = nullptr;
  CUdeviceptr device_address = 0;
  std::size_t mapped_bytes = 0;  // of pages of this process (pinned_pages.hpp); 0: the driver's own
};

// Page-locked, device-mapped host memory.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&&) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&&) noexcept;
  ~PinnedBuffer();

  void* data() const { return block_.data; }
  template <class T>
  T* as() const {
    return static_cast<T*>(block_.data);
  }
  CUdeviceptr device_address() const { return block_.device_address; }  // the same bytes, from a kernel
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return block_.data != nullptr; }

 private:
  friend class PinnedPool;
  class Impl;
  PinnedUse use_ = PinnedUse::kept;
  PinnedBlock block_;
  std::size_t bytes_ = 0, block_bytes_ = 0;
  std::shared_ptr<Impl> owner_;
};

class PinnedPool {
 public:
  // limit_bytes is for buffers and idle blocks together. It bounds memory and never fails a call: see
  // pinned_shares.hpp.
  PinnedPool(Context& context, std::size_t limit_bytes);
  ~PinnedPool();
  // For as long as a model or a session lives. Throws out_of_memory where the system refuses.
  PinnedBuffer allocate(std::size_t bytes);
  // For a result: an empty buffer beyond the results' share, and where the system refuses. The caller uses
  // ordinary memory then.
  PinnedBuffer try_allocate(std::size_t bytes);
  // For the copies of one call: a buffer of at least `least` and at most `wanted` bytes. Waits for its turn
  // while other calls hold the share. Throws out_of_memory where the system refuses although nobody else
  // holds any. One call holds one such buffer; it may try_stage() more.
  PinnedBuffer stage(std::size_t least, std::size_t wanted);
  PinnedBuffer stage(std::size_t bytes) { return stage(bytes, bytes); }
  PinnedBuffer try_stage(std::size_t bytes);  // empty where it would wait
  std::size_t staging_calls_waiting() const;
  std::size_t held_bytes() const;  // by live buffers
  std::size_t waiting_bytes() const;
  void trim();

 private:
  // A buffer whose `bytes` are already counted for `use`: empty, and no longer counted, where the system
  // refuses.
  PinnedBuffer obtain(PinnedUse use, std::size_t bytes);
  bool allocate_block(std::size_t size, PinnedBlock* block);
  [[noreturn]] void fail_refused(std::size_t bytes) const;

  Context& context_;
  std::size_t limit_;
  std::shared_ptr<PinnedBuffer::Impl> impl_;
};

}  // namespace exphil::cuda
