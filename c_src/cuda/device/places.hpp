// Assigns consecutive offsets to several tensors in one block of memory. Plain data; one thread at a time.
#pragma once

#include <cstddef>

namespace exphil::cuda {

class Places {
 public:
  // The alignment of DevicePool's blocks.
  static constexpr std::size_t kAlignment = 256;

  // The offset of the next `bytes` bytes.
  std::size_t take(std::size_t bytes) {
    const std::size_t place = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return place;
  }
  // The total size so far.
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace exphil::cuda
