#include "host/simd/kept_buffer.hpp"

#include "core/buffer_pool.hpp"
#include "core/tensor.hpp"

namespace exphil::host {

namespace {

// Never destroyed: at exit a thread may still be computing.
core::BufferPool& kept() {
  static auto* const pool = new core::BufferPool(static_cast<std::size_t>(kKeptBytes));
  return *pool;
}

}  // namespace

KeptBuffer::KeptBuffer(std::int64_t floats) {
  if (floats <= 0) return;
  const std::int64_t bytes = core::checked_multiply(floats, std::int64_t{sizeof(float)}, "frames");
  block_ = kept().allocate(static_cast<std::size_t>(bytes));
}

}  // namespace exphil::host
