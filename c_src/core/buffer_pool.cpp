#include "core/buffer_pool.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/work/reaper.hpp"

namespace exphil::core {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Four sizes per power of two: at most a quarter is wasted, and nearby sizes share blocks.
std::size_t size_class(std::size_t bytes) {
  std::size_t power = 4096;
  while (power < bytes / 2) power *= 2;
  const std::size_t step = power / 4 < 1024 ? 1024 : power / 4;
  return (bytes + step - 1) / step * step;
}

struct MemoryBlock {
  explicit MemoryBlock(std::size_t size) : bytes(size) {
    const std::size_t alignment = size >= 2 * kHugePage ? kHugePage : kAlignment;
    data = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (data != nullptr && alignment == kHugePage) madvise(data, size, MADV_HUGEPAGE);  // a hint: may fail
  }
  ~MemoryBlock() { std::free(data); }
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;

  void* data = nullptr;
  std::size_t bytes = 0;
};

}  // namespace

class BufferPool::Shelf {
 public:
  explicit Shelf(std::size_t limit) : limit_(limit) {}

  std::shared_ptr<MemoryBlock> take(std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = free_.find(bytes);
    if (found == free_.end() || found->second.empty()) return nullptr;
    std::shared_ptr<MemoryBlock> block = std::move(found->second.back());
    found->second.pop_back();
    cached_ -= bytes;
    return block;
  }

  void put(std::shared_ptr<MemoryBlock> block) noexcept {
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (cached_ + block->bytes <= limit_) {
        std::vector<std::shared_ptr<MemoryBlock>>& shelf = free_[block->bytes];
        const std::size_t bytes = block->bytes;
        shelf.push_back(std::move(block));
        cached_ += bytes;
        return;
      }
    } catch (...) {
      // No memory for the list: the block is freed like one beyond the limit.
    }
    reap(std::move(block));
  }

  std::size_t cached() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return cached_;
  }

  void trim() {
    std::map<std::size_t, std::vector<std::shared_ptr<MemoryBlock>>> released;
    const std::lock_guard<std::mutex> lock(mutex_);
    released.swap(free_);
    cached_ = 0;
  }

 private:
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<std::shared_ptr<MemoryBlock>>> free_;
  std::size_t cached_ = 0;
};

BufferPool::BufferPool(std::size_t cached_limit) : shelf_(std::make_shared<Shelf>(cached_limit)) {}

ResultBuffer BufferPool::allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX / 4) fail(ErrorKind::out_of_memory, "", "cannot allocate ", bytes, " bytes of memory");
  const std::size_t size = size_class(bytes);
  std::shared_ptr<MemoryBlock> block = shelf_->take(size);
  if (!block) {
    block = std::make_shared<MemoryBlock>(size);
    if (block->data == nullptr) {
      shelf_->trim();
      block = std::make_shared<MemoryBlock>(size);
    }
    if (block->data == nullptr) {
      fail(ErrorKind::out_of_memory, "", "the system refused ", size, " bytes of memory for a result");
    }
  }
  void* data = block->data;
  return ResultBuffer(data, bytes, [shelf = shelf_, block = std::move(block)](void*) mutable {
    shelf->put(std::move(block));
  });
}

std::size_t BufferPool::cached_bytes() const {
  return shelf_->cached();
}

void BufferPool::trim() {
  shelf_->trim();
}

}  // namespace exphil::core
