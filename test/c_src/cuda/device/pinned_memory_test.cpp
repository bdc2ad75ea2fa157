// The pool of page-locked memory: the shares of results, of staging and of models, and what happens where the
// system refuses. Over the fake driver; driver_test.cpp runs these.
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/device/context.hpp"
#include "cuda/device/memory.hpp"
#include "cuda/device/pinned_pages.hpp"
#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil::test {
namespace {

using core::ErrorKind;
using cuda::Context;
using cuda::driver;
using cuda::PinnedBuffer;
using cuda::PinnedPool;

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

}  // namespace
}  // namespace exphil::test
