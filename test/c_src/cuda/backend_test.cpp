// The CUDA backend's interface to nif/, over the fake driver (driver_test.cpp runs these) and on a real
// device.
#include "cuda/backend.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/device/context.hpp"
#include "support/catch.hpp"
#include "support/scan_case.hpp"

namespace exphil::test {
namespace {

std::string detail(const core::DeviceDescription& device, const std::string& key) {
  for (const auto& [name, value] : device.details) {
    if (name == key) return value;
  }
  return "";
}

TEST_CASE("one backend for each device, which describes itself", "[.fake]") {
  const auto backend = cuda::open_cuda_backend(0);
  CHECK(cuda::open_cuda_backend(0) == backend);
  const core::DeviceDescription device = backend->describe();
  CHECK(device.backend == "cuda");
  CHECK(device.index == 0);
  CHECK(device.name == "Fake GPU");
  CHECK(detail(device, "usable") == "true");
  CHECK(detail(device, "compute_capability") == "9.0");
  CHECK(detail(device, "driver_version") == "13.0");
  CHECK(detail(device, "total_memory") == std::to_string(kFakeMemory));
  CHECK_FALSE(detail(device, "nvrtc_version").empty());
}

TEST_CASE("large results are pinned, small ones are not", "[.fake]") {
  const auto backend = cuda::open_cuda_backend(0);
  cuda::PinnedPool& pool = cuda::Context::open(0)->pinned_pool();
  const std::size_t before = pool.held_bytes();
  {
    const core::ResultBuffer small = backend->allocate_result(core::kSmallestPooledResult - 1);
    const core::ResultBuffer none = backend->allocate_result(0);
    CHECK(pool.held_bytes() == before);
    std::memset(small.data(), 1, small.bytes());
  }
  core::ResultBuffer large = backend->allocate_result(core::kSmallestPooledResult);
  CHECK(large.bytes() == core::kSmallestPooledResult);
  CHECK(pool.held_bytes() >= before + core::kSmallestPooledResult);
  std::memset(large.data(), 1, large.bytes());
  void* const address = large.data();
  const auto frees = fake().calls("cuMemFreeHost"), pushes = fake().calls("cuCtxPushCurrent");
  std::thread([&] { large = core::ResultBuffer(); }).join();
  CHECK(pool.held_bytes() == before);
  CHECK(fake().calls("cuMemFreeHost") == frees);
  CHECK(fake().calls("cuCtxPushCurrent") == pushes);
  CHECK(backend->allocate_result(core::kSmallestPooledResult).data() == address);
}

TEST_CASE("results beyond the pinned limit are plain memory", "[.fake_limit]") {
  const auto backend = cuda::open_cuda_backend(0);
  cuda::PinnedPool& pool = cuda::Context::open(0)->pinned_pool();
  const core::ResultBuffer first = backend->allocate_result(600 * 1024);
  const std::size_t held = pool.held_bytes();
  CHECK(held >= 600 * 1024);
  const core::ResultBuffer second = backend->allocate_result(600 * 1024);
  CHECK(pool.held_bytes() == held);
  std::memset(second.data(), 1, second.bytes());
}

// 8 MB of pinned memory, of which two calls may stage at once.
TEST_CASE("256 threads scan at once and keep 10,000 results: no call fails", "[.fake_busy]") {
  const auto backend = cuda::open_cuda_backend(0);
  cuda::PinnedPool& pool = cuda::Context::open(0)->pinned_pool();
  ScanSpec spec;
  spec.batch = 1, spec.seq = 64, spec.dim = 64;
  const ScanCase scan_case(spec);
  constexpr std::size_t kBytes = 64 * 1024;
  const std::size_t before = pool.held_bytes();
  std::mutex mutex;
  std::vector<core::ResultBuffer> kept;
  std::string failure;
  std::vector<std::thread> threads;
  for (int i = 0; i < 256; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 40; ++round) {
        try {
          core::ResultBuffer result = backend->allocate_result(kBytes);
          core::ScanCall call = scan_case.call();
          call.set(core::ScanOperand::y, result.data());
          backend->scan(call);
          const std::lock_guard<std::mutex> lock(mutex);
          kept.push_back(std::move(result));
        } catch (const std::exception& error) {
          const std::lock_guard<std::mutex> lock(mutex);
          failure = error.what();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failure == "");
  CHECK(kept.size() == 256 * 40);
  CHECK(pool.held_bytes() <= std::size_t{8} << 20);
  kept.clear();
  CHECK(pool.held_bytes() == before);
}

TEST_CASE("many scans at once under a small pinned limit", "[cuda][backend]") {
  if (!have_nvrtc()) return;
  require_passed(run_over_fake("[fake_busy]", {{"EXPHIL_NATIVE_PINNED_LIMIT", "8388608"}}));
}

TEST_CASE("the pinned limit comes from the environment", "[cuda][backend]") {
  if (!have_nvrtc()) return;
  require_passed(run_over_fake("[fake_limit]", {{"EXPHIL_NATIVE_PINNED_LIMIT", "1000000"}}));
}

TEST_CASE("the real device describes itself and gives result memory", "[cuda][gpu]") {
  if (!have_device()) return;
  const auto backend = cuda::open_cuda_backend(0);
  const core::DeviceDescription device = backend->describe();
  INFO(device.name);
  CHECK(device.backend == "cuda");
  CHECK(detail(device, "usable") == "true");
  CHECK(cuda::cuda_devices().size() >= 1);
  core::ResultBuffer result = backend->allocate_result(std::size_t{4} << 20);
  std::memset(result.data(), 0x5a, result.bytes());
  const auto context = cuda::Context::open(0);
  const auto buffer = context->device_pool().allocate(result.bytes());
  const cuda::ContextGuard guard(*context);
  cuda::StreamLease stream(*context);
  context->check(cuda::driver().cuMemsetD8Async(buffer.address(), 0x33, result.bytes(), stream.handle()),
                 "memset");
  context->check(
      cuda::driver().cuMemcpyDtoHAsync(result.data(), buffer.address(), result.bytes(), stream.handle()),
      "DtoH");
  stream.synchronize();
  const auto* bytes = static_cast<const char*>(result.data());
  CHECK(std::all_of(bytes, bytes + result.bytes(), [](char byte) { return byte == 0x33; }));
}

}  // namespace
}  // namespace exphil::test
