// Free blocks kept for reuse, and the sizes of blocks. Shared by the device pool and the pinned pool; no
// CUDA. Not thread-safe: the pools hold their mutex.
#pragma once

#include <cstddef>
#include <iterator>
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
    return take(found, block, block_bytes);
  }

  // The smallest of at least `size` bytes, however much it wastes.
  bool take_larger(std::size_t size, Block* block, std::size_t* block_bytes) {
    const auto found = blocks_.lower_bound(size);
    return found != blocks_.end() && take(found, block, block_bytes);
  }

  // Blocks of `bytes` together, or all: the largest first, so that few are taken.
  std::vector<Block> take_some(std::size_t bytes) {
    std::vector<Block> some;
    std::size_t taken = 0;
    while (taken < bytes && !blocks_.empty()) {
      some.emplace_back();
      std::size_t block_bytes = 0;
      take(std::prev(blocks_.end()), &some.back(), &block_bytes);
      taken += block_bytes;
    }
    return some;
  }

  void put(std::size_t bytes, Block block) {
    blocks_.emplace(bytes, block);
    bytes_ += bytes;
  }

  std::vector<Block> take_all() { return take_some(bytes_); }

  std::size_t bytes() const { return bytes_; }

 private:
  using Place = typename std::multimap<std::size_t, Block>::iterator;

  bool take(Place place, Block* block, std::size_t* block_bytes) {
    *block_bytes = place->first;
    *block = place->second;
    bytes_ -= place->first;
    blocks_.erase(place);
    return true;
  }

  std::multimap<std::size_t, Block> blocks_;
  std::size_t bytes_ = 0;
};

}  // namespace exphil::cuda
