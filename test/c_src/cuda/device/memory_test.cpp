// The block list and the pool of device memory; and all pools from many threads. Over the fake driver
// (driver_test.cpp runs these) and on a real device.
#include "cuda/device/memory.hpp"

#include <cstring>
#include <thread>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/device/block_list.hpp"
#include "cuda/device/context.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil::test {
namespace {

using core::ErrorKind;
using cuda::Context;
using cuda::ContextGuard;
using cuda::DeviceBuffer;
using cuda::DevicePool;
using cuda::driver;
using cuda::PinnedBuffer;
using cuda::PinnedPool;

TEST_CASE("block sizes hold the request and waste little", "[cuda][memory]") {
  CHECK(cuda::block_size(0) == 512);
  CHECK(cuda::block_size(1) == 512);
  CHECK(cuda::block_size(513) == 1024);
  for (std::size_t bytes = 1; bytes < (std::size_t{1} << 40); bytes = bytes * 3 / 2 + 7) {
    const std::size_t size = cuda::block_size(bytes);
    CHECK(size >= bytes);
    CHECK(size % 512 == 0);
    if (bytes >= 4096) CHECK(size - bytes < bytes / 8);
    CHECK(cuda::block_size(size) == size);
  }
  CHECK(cuda::block_size(SIZE_MAX) == SIZE_MAX);
}

TEST_CASE("a free block is reused only where it fits closely", "[cuda][memory]") {
  cuda::BlockList<int> list;
  list.put(1000, 1);
  list.put(2000, 2);
  list.put(2000, 3);
  int block = 0;
  std::size_t bytes = 0;
  CHECK_FALSE(list.take(2001, &block, &bytes));
  CHECK_FALSE(list.take(700, &block, &bytes));  // wastes more than a quarter
  REQUIRE(list.take(900, &block, &bytes));
  CHECK(block == 1);
  CHECK(bytes == 1000);
  CHECK(list.bytes() == 4000);
  CHECK(list.take_all().size() == 2);
  CHECK(list.bytes() == 0);
}

TEST_CASE("device memory is reused, aligned and counted", "[.fake]") {
  const auto context = Context::open(0);
  DevicePool pool(*context);
  CUdeviceptr first = 0;
  {
    const DeviceBuffer buffer = pool.allocate(100000);
    first = buffer.address();
    CHECK(buffer.bytes() == 100000);
    CHECK(first % 256 == 0);
    CHECK(pool.held_bytes() >= 100000);
    CHECK(pool.waiting_bytes() == 0);
  }
  CHECK(pool.held_bytes() == 0);
  CHECK(pool.waiting_bytes() >= 100000);
  const auto allocations = fake().calls("cuMemAlloc");
  {
    const DeviceBuffer again = pool.allocate(99000);
    CHECK(again.address() == first);
    CHECK(fake().calls("cuMemAlloc") == allocations);
    const DeviceBuffer other = pool.allocate(99000);
    CHECK(other.address() != first);
  }
  CHECK(pool.allocate(0));
  pool.trim();
  CHECK(pool.waiting_bytes() == 0);
}

TEST_CASE("moved buffers free their memory once", "[.fake]") {
  const auto context = Context::open(0);
  DevicePool pool(*context);
  DeviceBuffer left = pool.allocate(1000);
  DeviceBuffer right = pool.allocate(5000);
  const CUdeviceptr kept = right.address();
  left = std::move(right);
  CHECK(left.address() == kept);
  CHECK_FALSE(right);
  CHECK(pool.held_bytes() == cuda::block_size(5000));
  const DeviceBuffer last(std::move(left));
  CHECK_FALSE(left);
  CHECK(pool.held_bytes() == cuda::block_size(5000));
}

TEST_CASE("exhausted device memory is an error, after free blocks are returned", "[.fake]") {
  const auto context = Context::open(0);
  context->device_pool().trim();
  DevicePool pool(*context);
  const std::size_t megabyte = std::size_t{1} << 20;
  { const DeviceBuffer waits = pool.allocate(15 * megabyte); }
  // 15 MB are free blocks: 50 more fit only after these are returned.
  {
    const DeviceBuffer large = pool.allocate(50 * megabyte);
    CHECK(pool.waiting_bytes() == 0);
    const core::Error error = thrown_by([&] { pool.allocate(20 * megabyte); });
    CHECK(error.kind() == ErrorKind::out_of_memory);
    CHECK(contains(error.what(), "20971520 bytes requested"));
    CHECK(contains(error.what(), std::to_string(kFakeMemory - fake().device_bytes()) + " of 67108864 free"));
    CHECK(contains(error.what(), std::to_string(pool.held_bytes()) + " held by this library"));
  }
  CHECK(fake().context_depth() == 0);
  CHECK_FALSE(context->lost());
  CHECK(thrown_by([&] { pool.allocate(SIZE_MAX); }).kind() == ErrorKind::out_of_memory);
  CHECK(pool.allocate(20 * megabyte));
}

TEST_CASE("free blocks stay below a quarter of the device", "[.fake]") {
  const auto context = Context::open(0);
  DevicePool pool(*context);
  {
    std::vector<DeviceBuffer> buffers;
    for (int i = 0; i < 10; ++i) buffers.push_back(pool.allocate(std::size_t{4} << 20));
  }
  CHECK(pool.waiting_bytes() >= std::size_t{40} << 20);
  const DeviceBuffer next = pool.allocate(1000);
  CHECK(pool.waiting_bytes() <= kFakeMemory / 4);
}

TEST_CASE("buffers may outlive their pool", "[.fake]") {
  const auto context = Context::open(0);
  const std::size_t device = fake().device_bytes(), pinned = fake().pinned_bytes();
  DeviceBuffer buffer;
  PinnedBuffer page;
  {
    DevicePool pool(*context);
    PinnedPool pages(*context, std::size_t{1} << 20);
    buffer = pool.allocate(10000);
    page = pages.allocate(10000);
    const DeviceBuffer waits = pool.allocate(30000);
  }
  CHECK(fake().device_bytes() == device + cuda::block_size(10000));
  static_cast<char*>(page.data())[9999] = 1;
  std::thread([&] {
    buffer = DeviceBuffer();
    page = PinnedBuffer();
    CHECK(fake().context_depth() == 0);
  }).join();
  CHECK(fake().device_bytes() == device);
  CHECK(fake().pinned_bytes() == pinned);
}

TEST_CASE("freeing a buffer makes no driver call", "[.fake]") {
  const auto context = Context::open(0);
  DeviceBuffer buffer = context->device_pool().allocate(10000);
  PinnedBuffer page = context->pinned_pool().allocate(10000);
  const auto pushes = fake().calls("cuCtxPushCurrent");
  const auto frees = fake().calls("cuMemFree") + fake().calls("cuMemFreeHost");
  buffer = DeviceBuffer();
  page = PinnedBuffer();
  CHECK(fake().calls("cuCtxPushCurrent") == pushes);
  CHECK(fake().calls("cuMemFree") + fake().calls("cuMemFreeHost") == frees);
}

// Each thread fills its buffer, yields to others, and checks its bytes.
void hammer(Context& context, DevicePool& pool, PinnedPool& pages, int seed, bool* good) {
  Random random(static_cast<std::uint64_t>(seed));
  std::vector<char> back(100000);
  for (int i = 0; i < 200 && *good; ++i) {
    const std::size_t bytes = 1 + random.bits() % back.size();
    const DeviceBuffer buffer = pool.allocate(bytes);
    const PinnedBuffer page = pages.allocate(bytes);
    const ContextGuard guard(context);
    cuda::StreamLease stream(context);
    std::memset(page.data(), seed, bytes);
    context.check(driver().cuMemcpyHtoDAsync(buffer.address(), page.data(), bytes, stream.handle()), "HtoD");
    context.check(driver().cuMemcpyDtoHAsync(back.data(), buffer.address(), bytes, stream.handle()), "DtoH");
    stream.synchronize();
    for (std::size_t k = 0; k < bytes; ++k) *good = *good && back[k] == static_cast<char>(seed);
  }
}

void hammer_from_threads() {
  const auto context = Context::open(0);
  DevicePool pool(*context);
  PinnedPool pages(*context, std::size_t{16} << 20);
  bool good[8];
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    good[i] = true;
    threads.emplace_back([&, i] { hammer(*context, pool, pages, i + 1, &good[i]); });
  }
  for (auto& thread : threads) thread.join();
  for (const bool one : good) CHECK(one);
  CHECK(pool.held_bytes() == 0);
  CHECK(pages.held_bytes() == 0);
}

TEST_CASE("pools and streams from many threads", "[.fake]") {
  hammer_from_threads();
}

TEST_CASE("pools and streams from many threads, on the device", "[cuda][gpu]") {
  if (have_device()) hammer_from_threads();
}

TEST_CASE("the device's exhausted memory is an error with numbers", "[cuda][gpu][refused]") {
  if (!have_device()) return;
  const auto context = Context::open(0);
  const core::Error error =
      thrown_by([&] { context->device_pool().allocate(context->properties().total_memory * 2); });
  CHECK(error.kind() == ErrorKind::out_of_memory);
  CHECK(contains(error.what(), std::to_string(context->properties().total_memory * 2) + " bytes requested"));
  CHECK(context->device_pool().allocate(1 << 20));
}

}  // namespace
}  // namespace exphil::test
