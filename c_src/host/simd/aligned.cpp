#include "host/simd/aligned.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "core/error.hpp"
#include "core/tensor.hpp"

namespace exphil::host {

namespace {
constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}  // namespace

AlignedBuffer::AlignedBuffer(std::int64_t floats) : floats_(floats) {
  if (floats <= 0) return;
  auto bytes = static_cast<std::size_t>(core::checked_multiply(floats, sizeof(float), ""));
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  data_ = static_cast<float*>(std::aligned_alloc(alignment, bytes));
  if (data_ == nullptr) {
    core::fail(core::ErrorKind::out_of_memory, "", "no host memory for ", bytes, " bytes");
  }
  // One TLB entry for 2 MB of weights instead of 512. A hint: the result is ignored.
  if (alignment == kHugePage) (void)madvise(data_, bytes, MADV_HUGEPAGE);
  std::memset(data_, 0, bytes);
}

AlignedBuffer::~AlignedBuffer() {
  std::free(data_);
}

}  // namespace exphil::host
