// Float memory for packed weights, resident states and scratch: 64-byte aligned and, from 2 MB on, on huge
// pages where the system grants them. Movable, single owner, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace exphil::host {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Zero-initialised. Throws out_of_memory.
  explicit AlignedBuffer(std::int64_t floats);
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~AlignedBuffer();

  float* data() { return data_; }
  const float* data() const { return data_; }
  std::int64_t floats() const { return floats_; }
  std::size_t bytes() const { return static_cast<std::size_t>(floats_) * sizeof(float); }

  // At least `floats` long afterwards; the contents are lost where it grows.
  void reserve(std::int64_t floats) {
    if (floats > floats_) *this = AlignedBuffer(floats);
  }

 private:
  void swap(AlignedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(floats_, other.floats_);
  }

  float* data_ = nullptr;
  std::int64_t floats_ = 0;
};

}  // namespace exphil::host
