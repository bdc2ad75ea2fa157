// Uploads over the fake driver (driver_test.cpp runs these): every byte is copied, ends are reported in order
// and not too early, whatever the size and however little pinned memory is free.
#include "cuda/device/upload.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/device/stream.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using cuda::Context;
using cuda::ContextGuard;
using cuda::ImageSegment;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

// Three tensors with gaps between them, `bytes` in total, and their destination in device memory.
class UploadCase {
 public:
  UploadCase(Context& context, std::size_t bytes)
      : context_(context), device_(context.device_pool().allocate(bytes)), host_(bytes) {
    for (std::size_t i = 0; i < bytes; ++i) host_[i] = static_cast<std::uint8_t>(i * 31 + i / 251);
    std::memset(reinterpret_cast<void*>(device_.address()), 0, bytes);
    const std::size_t third = bytes / 3;
    const std::size_t gap = third > 256 ? 100 : 0;
    add(0, third - gap), add(third, third - gap), add(2 * third, bytes - 2 * third);
    ends_ = {third - gap, third - gap, 2 * third, bytes};
  }
  // True where every end was reported once, in order, after the bytes before it were copied.
  bool run() {
    const ContextGuard guard(context_);
    cuda::StreamLease stream(context_);
    std::size_t next = 0;
    bool good = true;
    cuda::Upload upload(context_, stream.handle(), device_.address(), segments_, ends_,
                        [&](std::size_t i) { good = good && i == next++ && arrived(ends_[i]); });
    upload.run();
    stream.synchronize();
    return good && next == ends_.size() && arrived(host_.size());
  }

 private:
  void add(std::size_t at, std::size_t bytes) { segments_.push_back({host_.data() + at, at, bytes}); }
  bool arrived(std::size_t end) const {
    const auto* device = reinterpret_cast<const std::uint8_t*>(device_.address());
    for (const ImageSegment& s : segments_) {
      const std::size_t stop = std::min(end, s.at + s.bytes);
      if (s.at < stop && std::memcmp(device + s.at, host_.data() + s.at, stop - s.at) != 0) return false;
    }
    return true;
  }

  Context& context_;
  cuda::DeviceBuffer device_;
  std::vector<std::uint8_t> host_;
  std::vector<ImageSegment> segments_;
  std::vector<std::size_t> ends_;
};

TEST_CASE("an upload of any size arrives completely and in order", "[.fake]") {
  const auto context = Context::open(0);
  for (const std::size_t bytes : {std::size_t{3}, kMegabyte / 2 - 1, kMegabyte / 2, kMegabyte,
                                  4 * kMegabyte - 1, 4 * kMegabyte, 9 * kMegabyte + 3, 50 * kMegabyte}) {
    INFO(bytes << " bytes");
    CHECK(UploadCase(*context, bytes).run());
  }
}

TEST_CASE("an upload works with the remaining pinned memory", "[.fake]") {
  const auto context = Context::open(0);
  const ContextGuard guard(*context);
  std::vector<cuda::PinnedBuffer> held;
  while (cuda::PinnedBuffer buffer = context->pinned_pool().try_allocate(2 * kMegabyte)) {
    held.push_back(std::move(buffer));
  }
  REQUIRE(held.size() > 4);
  held.resize(held.size() - 2);  // room for a ring of two or four pieces
  for (int i = 0; i < 5; ++i) CHECK(UploadCase(*context, 20 * kMegabyte).run());
}

TEST_CASE("a copy that fails ends the upload", "[.fake]") {
  const auto context = Context::open(0);
  for (const int good : {0, 3, 8}) {
    UploadCase upload(*context, 9 * kMegabyte);
    fake().fail_next("cuMemcpyHtoDAsync", CUDA_ERROR_INVALID_VALUE, good);
    CHECK(contains(thrown_by([&] { upload.run(); }).what(), "cuMemcpyHtoDAsync"));
    CHECK(upload.run());
  }
}

}  // namespace
}  // namespace exphil::test
