// The guard's balance, error messages, and the effect of a lost device. Over the fake driver (driver_test.cpp
// runs these) and on a real one.
#include "cuda/device/context.hpp"

#include <thread>

#include "cuda/backend.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/jit/launch.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using core::ErrorKind;
using cuda::Context;
using cuda::ContextGuard;
using cuda::driver;

TEST_CASE("guards nest, and unwind with exceptions", "[.fake]") {
  const auto context = Context::open(0);
  CHECK(fake().context_depth() == 0);
  {
    const ContextGuard outer(*context);
    CHECK(fake().context_depth() == 1);
    try {
      const ContextGuard inner(*context);
      CHECK(fake().context_depth() == 2);
      context->check(CUDA_ERROR_INVALID_VALUE, "cuSomething");
    } catch (const core::Error&) {
      CHECK(fake().context_depth() == 1);
    }
    std::thread([&] {
      CHECK(fake().context_depth() == 0);  // of its own thread
      const ContextGuard guard(*context);
      CHECK(fake().context_depth() == 1);
    }).join();
  }
  CHECK(fake().context_depth() == 0);
}

TEST_CASE("every public call leaves the thread's context as it was", "[.fake]") {
  const auto context = Context::open(0);
  {
    const auto buffer = context->device_pool().allocate(1000);
    const auto pinned = context->pinned_pool().allocate(1000);
    cuda::StreamLease stream(*context);
    cuda::Event event(*context, cuda::Event::Timing::on);
    event.record(stream.handle());
    event.make_wait(stream.handle());
    event.synchronize();
    CHECK(event.done());
    stream.synchronize();
    CHECK(fake().context_depth() == 0);
  }
  context->device_pool().trim();
  context->pinned_pool().trim();
  CHECK(fake().context_depth() == 0);
  CHECK(fake().calls("cuCtxPushCurrent") == fake().calls("cuCtxPopCurrent"));
}

TEST_CASE("a failed call is reported with name, error and number", "[.fake]") {
  const auto context = Context::open(0);
  const core::Error error = thrown_by([&] { context->check(CUDA_ERROR_INVALID_VALUE, "cuSomething"); });
  CHECK(error.kind() == ErrorKind::cuda_error);
  CHECK(std::string(error.what()) ==
        "cuSomething failed with CUDA_ERROR_INVALID_VALUE (1): as the fake driver says");
  CHECK(thrown_by([&] { context->check(CUDA_ERROR_OUT_OF_MEMORY, "cuX"); }).kind() ==
        ErrorKind::out_of_memory);
  CHECK(contains(thrown_by([&] { context->check(static_cast<CUresult>(12345), "cuX"); }).what(), "12345"));
  CHECK_FALSE(context->lost());
}

TEST_CASE("a failed push is an error and leaves nothing behind", "[.fake]") {
  const auto context = Context::open(0);
  fake().fail_next("cuCtxPushCurrent", CUDA_ERROR_INVALID_CONTEXT, 0);
  CHECK(thrown_by([&] { const ContextGuard guard(*context); }).kind() == ErrorKind::cuda_error);
  CHECK(fake().context_depth() == 0);
  CHECK_FALSE(context->lost());
}

// Tests that need a process of their own: the context stays lost.
TEST_CASE("a sticky error loses the device, and later calls say so", "[.fake_lost]") {
  const auto backend = cuda::open_cuda_backend(0);
  const auto context = Context::open(0);
  auto kept = context->device_pool().allocate(5000);
  auto result = backend->allocate_result(1 << 20);
  {
    cuda::StreamLease stream(*context);
    fake().fail_next("cuStreamSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS, 0);
    const core::Error first = thrown_by([&] { stream.synchronize(); });
    CHECK(first.kind() == ErrorKind::device_lost);
    CHECK(contains(first.what(), "cuStreamSynchronize failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  }
  CHECK(context->lost());
  const auto check_lost = [](const std::function<void()>& call) {
    const core::Error error = thrown_by(call);
    CHECK(error.kind() == ErrorKind::device_lost);
    CHECK(contains(error.what(), "cuStreamSynchronize failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    CHECK(contains(error.what(), "Fake GPU"));
  };
  check_lost([&] { const ContextGuard guard(*context); });
  check_lost([&] { context->device_pool().allocate(std::size_t{1} << 20); });
  check_lost([&] { context->pinned_pool().allocate(std::size_t{2} << 20); });
  check_lost([&] { cuda::StreamLease lease(*context); });
  check_lost([&] { backend->scan({}); });
  check_lost([&] { backend->load(nullptr, {}); });
  // An allocated result is still readable and is freed without an error.
  static_cast<char*>(result.data())[(1 << 20) - 1] = 7;
  kept = cuda::DeviceBuffer();
  result = core::ResultBuffer();
  CHECK(fake().context_depth() == 0);
  CHECK(cuda::Context::open(0) == context);
}

TEST_CASE("a sticky error in a destructor loses the device", "[.fake_lost_note]") {
  const auto context = Context::open(0);
  {
    cuda::StreamLease stream(*context);
    fake().fail_next("cuStreamSynchronize", CUDA_ERROR_LAUNCH_FAILED, 0);
  }
  CHECK(context->lost());
  CHECK(contains(thrown_by([&] { context->require_alive(); }).what(), "(719)"));
}

TEST_CASE("a device lost in a destructor", "[cuda][context]") {
  if (!have_nvrtc()) return;
  require_passed(run_over_fake("[fake_lost_note]"));
}

TEST_CASE("a real illegal address loses the device, in a child process", "[.gpu_lost]") {
  const auto context = Context::open(0);
  const Folder kernels;
  kernels.write("stray.cu", "extern \"C\" __global__ void stray(float* to) { to[threadIdx.x] = 1.0f; }");
  const Environment folder("EXPHIL_NATIVE_KERNELS", kernels.path().c_str());
  {
    const ContextGuard guard(*context);
    const CUfunction stray = context->kernels().get({"stray.cu", "stray", {}});
    cuda::StreamLease stream(*context);
    cuda::launch(*context, stray, {1}, {32}, 0, stream.handle(), reinterpret_cast<float*>(0x10));
    CHECK(thrown_by([&] { stream.synchronize(); }).kind() == ErrorKind::device_lost);
  }
  const core::Error later = thrown_by([&] { context->device_pool().allocate(1 << 20); });
  CHECK(later.kind() == ErrorKind::device_lost);
  CHECK(contains(later.what(), "(700)"));
}

TEST_CASE("a kernel that writes out of bounds is reported and the process continues",
          "[cuda][gpu][refused]") {
  if (!have_device()) return;
  require_passed(run_tests("[gpu_lost]", {}));
}

}  // namespace
}  // namespace exphil::test
