// The block list; the pools over the fake driver (driver_test.cpp runs these) and on a real device.
#include "cuda/device/memory.hpp"

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/device/block_list.hpp"
#include "cuda/device/context.hpp"
#include "cuda/device/pinned_pages.hpp"
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

TEST_CASE("pinned results are bounded by their share, idle blocks by the limit", "[.fake]") {
  const auto context = Context::open(0);
  PinnedPool pool(*context, 100 * 1024);
  PinnedBuffer first = pool.try_allocate(60 * 1024);
  CHECK(first.device_address() == reinterpret_cast<CUdeviceptr>(first.data()));
  CHECK_FALSE(pool.try_allocate(60 * 1024));
  first = PinnedBuffer();
  CHECK(pool.waiting_bytes() == 60 * 1024);
  CHECK(pool.try_allocate(75 * 1024));  // once the idle block is freed
  CHECK_FALSE(pool.try_allocate(76 * 1024));
  CHECK_FALSE(pool.try_allocate(SIZE_MAX));
}

TEST_CASE("pinned memory for a model is there whatever results hold, and takes from their share", "[.fake]") {
  const auto context = Context::open(0);
  PinnedPool pool(*context, 100 * 1024);
  const PinnedBuffer result = pool.try_allocate(75 * 1024);
  PinnedBuffer kept = pool.allocate(300 * 1024);
  CHECK(kept.bytes() == 300 * 1024);
  CHECK_FALSE(pool.try_allocate(512));
  CHECK(pool.stage(20 * 1024));
  kept = PinnedBuffer();
  CHECK_FALSE(pool.try_allocate(512));
}

TEST_CASE("staging takes what is free, waits for the least it needs, and is served in turn", "[.fake]") {
  const auto context = Context::open(0);
  PinnedPool pool(*context, 400 * 1024);                // 100 KB for staging
  CHECK(pool.stage(300 * 1024).bytes() == 300 * 1024);  // alone: whatever it needs
  PinnedBuffer first = pool.stage(10 * 1024, 60 * 1024);
  CHECK(first.bytes() == 60 * 1024);
  PinnedBuffer second = pool.stage(10 * 1024, 60 * 1024);
  CHECK(second.bytes() == 30 * 1024);  // half of what it wants
  CHECK_FALSE(pool.try_stage(11 * 1024));
  std::mutex mutex;
  std::vector<std::size_t> order;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const PinnedBuffer mine = pool.stage(90 * 1024);
      const std::lock_guard<std::mutex> lock(mutex);
      order.push_back(i);
    });
    while (pool.staging_calls_waiting() <= i) std::this_thread::yield();
  }
  second = PinnedBuffer();
  CHECK_FALSE(pool.try_stage(512));  // others wait for it
  CHECK(order.empty());
  first = PinnedBuffer();
  for (std::thread& thread : threads) thread.join();
  CHECK(order == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(pool.try_stage(512));
}

// What many scans of 16 MB at once do to a pool of 512 MB, a thousandth of the size: a new block for one call
// in a hundred. When the pool freed all idle blocks for each new one it was one in twenty.
TEST_CASE("a pinned pool that results and staging fill reuses its blocks", "[.fake]") {
  struct Job {
    PinnedBuffer ring, result, staged;
  };
  const auto context = Context::open(0);
  PinnedPool pool(*context, 512 * 1024);
  Random random(3);
  const auto happens = [&](unsigned percent) { return random.bits() % 100 < percent; };
  std::vector<Job> jobs;
  std::vector<PinnedBuffer> results;
  std::int64_t warm = 0;
  for (int round = 0; round < 4000; ++round) {
    if (round == 2000) warm = fake().calls("cuMemHostAlloc");
    if (jobs.size() == 4 || (!jobs.empty() && happens(50))) {
      const auto ended = jobs.begin() + static_cast<std::ptrdiff_t>(random.bits() % jobs.size());
      if (ended->result) results.push_back(std::move(ended->result));
      jobs.erase(ended);
    } else if (PinnedBuffer least = pool.try_stage(2 * 1024)) {  // so that stage() does not wait
      least = PinnedBuffer();
      Job job;
      job.ring = pool.stage(2 * 1024, 48 * 1024);
      job.result = pool.try_allocate(16 * 1024);
      if (!job.result) job.staged = pool.try_stage(16 * 1024);
      jobs.push_back(std::move(job));
    }
    while (!results.empty() && happens(30)) {
      results.erase(results.begin() + static_cast<std::ptrdiff_t>(random.bits() % results.size()));
    }
  }
  CHECK(fake().calls("cuMemHostAlloc") - warm <= 40);
}

TEST_CASE("256 threads stage at once from a pool that has room for two", "[.fake]") {
  const auto context = Context::open(0);
  PinnedPool pool(*context, std::size_t{8} << 20);
  std::atomic<int> together{0}, most{0}, done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 256; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 4; ++round) {
        const PinnedBuffer mine = pool.stage(std::size_t{1} << 20);
        const int now = ++together;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        static_cast<char*>(mine.data())[mine.bytes() - 1] = 1;
        --together;
        ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(done == 1024);
  CHECK(most <= 2);
  CHECK(pool.held_bytes() == 0);
}

TEST_CASE("staging that the system refuses is asked for again once another call ends", "[.fake]") {
  const auto context = Context::open(0);
  context->pinned_pool().trim();
  PinnedPool pool(*context, std::size_t{1} << 30);
  const std::size_t megabyte = std::size_t{1} << 20;
  PinnedBuffer first = pool.stage(40 * megabyte);  // of the 64 MB that there are
  CHECK(pool.stage(10 * megabyte, 60 * megabyte).bytes() == 10 * megabyte);
  std::atomic<bool> got{false};
  const auto asked = fake().calls("cuMemHostRegister");
  std::thread other([&] {
    const PinnedBuffer mine = pool.stage(50 * megabyte);
    got = true;
  });
  while (fake().calls("cuMemHostRegister") == asked) std::this_thread::yield();
  CHECK_FALSE(got);
  first = PinnedBuffer();
  other.join();
  CHECK(got);
  const core::Error error = thrown_by([&] { pool.stage(100 * megabyte); });
  CHECK(error.kind() == ErrorKind::out_of_memory);
  CHECK(contains(error.what(), "the system refused 104857600 bytes"));
}

TEST_CASE("pinned memory that waits is given back before the system's end is", "[.fake]") {
  const auto context = Context::open(0);
  context->pinned_pool().trim();
  PinnedPool pool(*context, std::size_t{1} << 30);
  { const PinnedBuffer waits = pool.allocate(std::size_t{15} << 20); }
  CHECK(pool.allocate(std::size_t{55} << 20));  // of 64 MB
  CHECK_FALSE(pool.try_allocate(std::size_t{70} << 20));
}

TEST_CASE("pinned memory that the system refuses is an empty buffer and not counted", "[.fake]") {
  const auto context = Context::open(0);
  PinnedPool pool(*context, std::size_t{1} << 20);
  fake().fail_next("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY, 0);
  CHECK_FALSE(pool.try_allocate(5000));
  CHECK(pool.held_bytes() == 0);
  const std::size_t before = fake().pinned_bytes();
  fake().fail_next("cuMemHostGetDevicePointer", CUDA_ERROR_INVALID_VALUE, 0);
  CHECK(thrown_by([&] { pool.try_allocate(5000); }).kind() == ErrorKind::cuda_error);
  CHECK(fake().pinned_bytes() == before);
  CHECK(pool.held_bytes() == 0);
  CHECK(pool.try_allocate(5000));
}

TEST_CASE("large pinned blocks are pages of this process, and as good as the driver's", "[.fake]") {
  const auto context = Context::open(0);
  context->pinned_pool().trim();
  PinnedPool pool(*context, std::size_t{64} << 20);
  const std::size_t before = fake().pinned_bytes(), large = cuda::kHugePage + 5000;
  const auto allocated = fake().calls("cuMemHostAlloc"), registered = fake().calls("cuMemHostRegister");
  {
    const PinnedBuffer small = pool.allocate(cuda::kHugePage / 2);
    CHECK(fake().calls("cuMemHostAlloc") == allocated + 1);
    const PinnedBuffer buffer = pool.allocate(large);
    CHECK(fake().calls("cuMemHostRegister") == registered + 1);
    CHECK(buffer.bytes() == large);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % cuda::kHugePage == 0);
    CHECK(buffer.device_address() == reinterpret_cast<CUdeviceptr>(buffer.data()));
    std::memset(buffer.data(), 1, large);
  }
  CHECK(pool.allocate(large));  // the same block again
  CHECK(fake().calls("cuMemHostRegister") == registered + 1);

  // Nothing stays pinned, counted or mapped of a block that the driver refuses.
  pool.trim();
  CHECK(fake().pinned_bytes() == before);
  fake().fail_next("cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY, 0);
  CHECK_FALSE(pool.try_allocate(large));
  fake().fail_next("cuMemHostRegister", CUDA_ERROR_INVALID_VALUE, 0);
  CHECK(thrown_by([&] { pool.try_allocate(large); }).kind() == ErrorKind::cuda_error);
  fake().fail_next("cuMemHostGetDevicePointer", CUDA_ERROR_INVALID_VALUE, 0);
  CHECK(thrown_by([&] { pool.try_allocate(large); }).kind() == ErrorKind::cuda_error);
  CHECK(pool.held_bytes() == 0);
  CHECK(fake().pinned_bytes() == before);
  CHECK_FALSE(pool.try_allocate(std::size_t{1} << 45));  // more than any system maps
  CHECK(pool.try_allocate(large));
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
