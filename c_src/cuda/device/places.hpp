// Places of several tensors in one piece of memory, one after another. Plain data; one thread at a time.
#pragma once

#include <cstddef>

namespace exphil::cuda {

class Places {
 public:
  // What DevicePool aligns its blocks to.
  static constexpr std::size_t kAlignment = 256;

  // Where the next `bytes` bytes lie.
  std::size_t take(std::size_t bytes) {
    const std::size_t place = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return place;
  }
  // Of everything so far.
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace exphil::cuda
