// Streams and events over the fake driver (driver_test.cpp runs these) and on a real device.
#include "cuda/device/stream.hpp"

#include <thread>

#include "cuda/cuda_test.hpp"
#include "cuda/device/context.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

using cuda::Context;
using cuda::ContextGuard;
using cuda::driver;
using cuda::Event;
using cuda::StreamLease;
using cuda::StreamPool;

TEST_CASE("a stream is leased to one call at a time and reused", "[.fake]") {
  const auto context = Context::open(0);
  CUstream first = nullptr;
  {
    const StreamLease lease(*context);
    first = lease.handle();
    const StreamLease other(*context);
    CHECK(other.handle() != first);
  }
  const auto created = fake().calls("cuStreamCreate");
  const StreamLease again(*context);
  const StreamLease second(*context);
  CHECK((again.handle() == first || second.handle() == first));
  CHECK(fake().calls("cuStreamCreate") == created);
}

TEST_CASE("a lease waits for its work before it returns the stream", "[.fake]") {
  const auto context = Context::open(0);
  const auto before = fake().calls("cuStreamSynchronize");
  { const StreamLease lease(*context); }
  CHECK(fake().calls("cuStreamSynchronize") == before + 1);
}

TEST_CASE("a stream that cannot be synchronised is not reused", "[.fake]") {
  const auto context = Context::open(0);
  int alive = 0;
  {
    const StreamLease lease(*context);
    alive = fake().streams();
    fake().fail_next("cuStreamSynchronize", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 0);
  }
  CHECK(fake().streams() == alive - 1);
  CHECK_FALSE(context->lost());
  CHECK(fake().context_depth() == 0);
}

TEST_CASE("a stream whose context cannot be entered is destroyed", "[.fake]") {
  const auto context = Context::open(0);
  int alive = 0;
  {
    const StreamLease lease(*context);
    alive = fake().streams();
    fake().fail_next("cuCtxPushCurrent", CUDA_ERROR_OUT_OF_MEMORY, 0);
  }
  CHECK(fake().streams() == alive - 1);
  CHECK(fake().context_depth() == 0);
}

TEST_CASE("a pool destroys its streams, events destroy themselves", "[.fake]") {
  const auto context = Context::open(0);
  const int streams = fake().streams(), events = fake().events();
  {
    StreamPool pool(*context);
    CUstream one = pool.take(), two = pool.take();
    pool.give(one);
    pool.give(two);
    const Event event(*context);
    CHECK(fake().streams() == streams + 2);
    CHECK(fake().events() == events + 1);
  }
  CHECK(fake().streams() == streams);
  CHECK(fake().events() == events);
}

TEST_CASE("an event that has not completed is not an error", "[.fake]") {
  const auto context = Context::open(0);
  Event event(*context);
  fake().fail_next("cuEventQuery", CUDA_ERROR_NOT_READY, 0);
  CHECK_FALSE(event.done());
  CHECK(event.done());
}

TEST_CASE("events order streams and measure time on the device", "[cuda][gpu]") {
  if (!have_device()) return;
  const auto context = Context::open(0);
  const std::size_t bytes = std::size_t{256} << 20;
  const cuda::DeviceBuffer from = context->device_pool().allocate(bytes);
  const cuda::DeviceBuffer to = context->device_pool().allocate(bytes);
  StreamLease first(*context), second(*context);
  Event start(*context, Event::Timing::on), end(*context, Event::Timing::on);
  const ContextGuard guard(*context);
  context->check(driver().cuMemsetD32Async(from.address(), 0x01020304, bytes / 4, first.handle()), "memset");
  start.record(first.handle());
  start.make_wait(second.handle());
  context->check(driver().cuMemcpyDtoDAsync(to.address(), from.address(), bytes, second.handle()), "copy");
  end.record(second.handle());
  end.synchronize();
  CHECK(end.done());
  CHECK(end.milliseconds_since(start) > 0);
  unsigned last = 0;
  context->check(driver().cuMemcpyDtoH(&last, to.address() + bytes - 4, 4), "cuMemcpyDtoH");
  CHECK(last == 0x01020304);
}

}  // namespace
}  // namespace exphil::test
