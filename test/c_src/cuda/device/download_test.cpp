// Downloads over the fake driver (driver_test.cpp runs these).
#include "cuda/device/download.hpp"

#include <cstring>
#include <vector>

#include "cuda/cuda_test.hpp"
#include "cuda/device/memory.hpp"
#include "cuda/device/stream.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using cuda::Context;
using cuda::ContextGuard;

constexpr std::size_t kBytes = 5000;

// Copies kBytes from the device to `to`. Returns whether they were there before finish(): copied without
// staging.
bool copied_directly(Context& context, CUdeviceptr from, char* to) {
  const ContextGuard guard(context);
  cuda::StreamLease stream(context);
  cuda::Download download(context);
  download.add(stream.handle(), to, from, kBytes);
  stream.synchronize();
  const auto there = [&] { return std::memcmp(to, reinterpret_cast<void*>(from), kBytes) == 0; };
  const bool direct = there();
  download.finish();
  CHECK(there());
  return direct;
}

// A user's compute-sanitizer reports every driver call that fails.
TEST_CASE("a download asks without a failing call whether its target is pinned", "[.fake]") {
  const auto context = Context::open(0);
  const cuda::DeviceBuffer device = context->device_pool().allocate(kBytes);
  std::memset(reinterpret_cast<void*>(device.address()), 7, kBytes);
  const cuda::PinnedBuffer pinned = context->pinned_pool().allocate(kBytes);
  { const cuda::PinnedBuffer staging = context->pinned_pool().stage(kBytes); }
  std::memset(pinned.data(), 0, kBytes);
  std::vector<char> pageable(kBytes);
  const auto refusing = fake().calls("cuMemHostGetDevicePointer"),
             asking = fake().calls("cuPointerGetAttributes");
  CHECK(copied_directly(*context, device.address(), static_cast<char*>(pinned.data())));
  CHECK_FALSE(copied_directly(*context, device.address(), pageable.data()));
  CHECK(fake().calls("cuMemHostGetDevicePointer") == refusing);
  CHECK(fake().calls("cuPointerGetAttributes") > asking);
}

TEST_CASE("a download into memory of which only the first bytes are pinned is staged", "[.fake]") {
  const auto context = Context::open(0);
  const cuda::DeviceBuffer device = context->device_pool().allocate(kBytes);
  std::memset(reinterpret_cast<void*>(device.address()), 7, kBytes);
  std::vector<char> memory(kBytes);
  {
    const ContextGuard guard(*context);
    REQUIRE(cuda::driver().cuMemHostRegister(memory.data(), kBytes - 1, 0) == CUDA_SUCCESS);
  }
  CHECK_FALSE(copied_directly(*context, device.address(), memory.data()));
  const ContextGuard guard(*context);
  CHECK(cuda::driver().cuMemHostUnregister(memory.data()) == CUDA_SUCCESS);
}

// Of both kinds of blocks: the driver's own, and pages of this process.
void check_addresses() {
  const auto context = Context::open(0);
  const ContextGuard guard(*context);
  std::vector<char> pageable(kBytes);
  CHECK(cuda::pinned_address(pageable.data(), kBytes) == 0);
  for (const std::size_t bytes : {kBytes, std::size_t{5} << 20}) {
    CAPTURE(bytes);
    const cuda::PinnedBuffer pinned = context->pinned_pool().allocate(bytes);
    CHECK(cuda::pinned_address(pinned.data(), bytes) == pinned.device_address());
    CHECK(cuda::pinned_address(pinned.as<char>() + 260, 100) == pinned.device_address() + 260);
  }
}

TEST_CASE("pinned memory is found where a kernel finds it", "[.fake]") {
  check_addresses();
}

TEST_CASE("pinned memory is found where a kernel finds it on the GPU", "[cuda][gpu][device]") {
  if (!have_device()) return;
  check_addresses();
}

}  // namespace
}  // namespace exphil::test
