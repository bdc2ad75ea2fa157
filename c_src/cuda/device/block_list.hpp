// Freed blocks that wait for reuse, and the sizes blocks are cut to. The common part of the device and the
// pinned pool; knows nothing of CUDA. Not safe by itself: the pools hold their mutex.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace exphil::cuda {

// What is allocated for `bytes`: at least 512, at most an eighth more than asked from 4 KB on, so that
// requests of similar sizes share blocks.
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
  // The smallest waiting block of at least `size` bytes that wastes no more than a quarter of it.
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
