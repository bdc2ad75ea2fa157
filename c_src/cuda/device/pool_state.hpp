// What a memory pool and its buffers share: the list of free blocks, and what remains of the pool once it is
// gone. Used by memory.cpp. Safe from any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda/device/block_list.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/device/memory.hpp"
#include "cuda/device/pinned_pages.hpp"
#include "cuda/device/quiet_context.hpp"
#include "cuda/device/slow_call.hpp"

namespace exphil::cuda {

inline void free_block(CUdeviceptr address) {
  driver().cuMemFree(address);
}
inline void free_block(const PinnedBlock& block) {
  if (block.mapped_bytes > 0) return unpin_pages(block);
  driver().cuMemFreeHost(block.data);
}

template <class Block>
class PoolState {
 public:
  // armed: of the device whose memory it is; null for page-locked memory. See SlowCall.
  PoolState(CUcontext context, ArmedSlot* armed) : context_(context), armed_(armed) {}

  bool take(std::size_t size, Block* block, std::size_t* block_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!waiting_.take(size, block, block_bytes)) return false;
    held_ += *block_bytes;
    return true;
  }

  // take(), or where a new block of `size` bytes would pass `limit`, a free one of any larger size.
  bool take_within(std::size_t size, std::size_t limit, Block* block, std::size_t* block_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool full = size > room(limit);
    if (!waiting_.take(size, block, block_bytes) &&
        !(full && waiting_.take_larger(size, block, block_bytes))) {
      return false;
    }
    held_ += *block_bytes;
    return true;
  }

  // Counts `size` bytes as held unless held and waiting would pass `limit` together.
  bool reserve(std::size_t size, std::size_t limit) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (size > room(limit)) return false;
    held_ += size;
    return true;
  }

  // reserve(), after as many free blocks were given back to the driver as it takes. Counts the bytes even
  // where they pass the limit.
  void make_room(std::size_t size, std::size_t limit) {
    std::vector<Block> freed;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const std::size_t free = room(limit);
      if (size > free) freed = waiting_.take_some(size - free);
      held_ += size;
    }
    release(freed);
  }

  void unreserve(std::size_t size) {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ -= size;
  }

  // From a buffer's destructor.
  void give_back(Block block, std::size_t block_bytes) noexcept {
    try {
      std::lock_guard<std::mutex> lock(mutex_);
      held_ -= block_bytes;
      if (!closed_) {
        waiting_.put(block_bytes, block);
        return;
      }
    } catch (...) {
      return;  // no memory for the list's node: the block is lost, the VM is not
    }
    release({block});
  }

  void trim() {
    std::vector<Block> all;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      all = waiting_.take_all();
    }
    release(all);
  }

  void close() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    trim();
  }

  std::size_t held() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return held_;
  }
  std::size_t waiting() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.bytes();
  }

 private:
  std::size_t room(std::size_t limit) const {
    const std::size_t used = held_ + waiting_.bytes();
    return limit > used ? limit - used : 0;
  }

  // Results are ignored: on a lost device, or one that is shutting down, there is nothing left to free.
  void release(const std::vector<Block>& blocks) {
    if (blocks.empty()) return;
    const QuietContext current(context_);
    if (!current.pushed()) return;
    const SlowCall slow(armed_);
    for (const Block& block : blocks) free_block(block);
  }

  const CUcontext context_;
  ArmedSlot* const armed_;
  mutable std::mutex mutex_;
  BlockList<Block> waiting_;
  std::size_t held_ = 0;
  bool closed_ = false;
};

}  // namespace exphil::cuda
