// Free blocks kept for reuse, and the sizes of blocks. Shared by the device pool and the pinned pool; no
// CUDA. Not thread-safe: the pools hold their mutex.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace exphil::cuda {

// The block size for a request of `bytes`: at least 512, from 4 KB on at most an eighth larger than
// requested, so that requests of similar sizes share blocks.
inline std::size_t block_size(std::size_t bytes) {
  constexpr std::size_t kSmallest = 512;
  std::size_t step = kSmallest;
  while (step <= bytes / 16) step *= 2;
  const std::size_t rounded = (bytes + step - 1) / step * step;
  return rounded < bytes ? bytes : (rounded == 0 ? kSmallest : rounded);  // the former on overflow
}

template <class Block>
class BlockList {
 public:
  // Takes the smallest free block of at least `size` bytes that wastes at most a quarter of itself.
  bool take(std::size_t size, Block* block, std::size_t* block_bytes) {
    const auto found = blocks_.lower_bound(size);
    if (found == blocks_.end() || found->first - size > size / 4) return false;
    *block_bytes = found->first;
    *block = found->second;
    bytes_ -= found->first;
    blocks_.erase(found);
    return true;
  }

  void put(std::size_t bytes, Block block) {
    blocks_.emplace(bytes, block);
    bytes_ += bytes;
  }

  std::vector<Block> take_all() {
    std::vector<Block> all;
    all.reserve(blocks_.size());
    for (const auto& [bytes, block] : blocks_) all.push_back(block);
    blocks_.clear();
    bytes_ = 0;
    return all;
  }

  std::size_t bytes() const { return bytes_; }

 private:
  std::multimap<std::size_t, Block> blocks_;
  std::size_t bytes_ = 0;
};

}  // namespace exphil::cuda
