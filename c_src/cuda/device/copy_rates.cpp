#include "cuda/device/copy_rates.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "cuda/device/context.hpp"

namespace exphil::cuda {

namespace {

// The link transfers the first in about 1 ms. The second is larger than any L2; two buffers of it are
// allocated on a device that others may be using.
constexpr std::size_t kLinkBytes = std::size_t{64} << 20;
constexpr std::size_t kMemoryBytes = std::size_t{512} << 20;
constexpr std::size_t kShareOfMemory = 16;
constexpr int kCopies = 8;

// Bytes a second of the fastest of several copies; copy() queues one on the stream.
template <class Copy>
double best_rate(Context& context, StreamLease& stream, double bytes, const Copy& copy) {
  Event began(context, Event::Timing::on), ended(context, Event::Timing::on);
  float best = 0;
  for (int i = 0; i < kCopies; ++i) {
    began.record(stream.handle());
    copy();
    ended.record(stream.handle());
    stream.synchronize();
    const float milliseconds = ended.milliseconds_since(began);
    best = i == 0 ? milliseconds : std::min(best, milliseconds);
  }
  return best > 0 ? bytes / (static_cast<double>(best) / 1e3) : 0;
}

}  // namespace

core::CopyRates measure_copy_rates(int device) {
  const std::shared_ptr<Context> opened = Context::open(device);
  Context& context = *opened;
  context.require_alive();
  const ContextGuard guard(context);
  const std::size_t memory = std::min(kMemoryBytes, context.properties().total_memory / kShareOfMemory);
  const std::size_t link = std::min(kLinkBytes, memory);
  const DeviceBuffer from = context.device_pool().allocate(memory);
  const DeviceBuffer to = context.device_pool().allocate(memory);
  const PinnedBuffer host = context.pinned_pool().stage(link);
  StreamLease stream(context);  // synchronises before the buffers above go
  const CUstream handle = stream.handle();

  core::CopyRates rates;
  rates.to_device = best_rate(context, stream, static_cast<double>(link), [&] {
    context.check(driver().cuMemcpyHtoDAsync(from.address(), host.data(), link, handle), "cuMemcpyHtoDAsync");
  });
  rates.from_device = best_rate(context, stream, static_cast<double>(link), [&] {
    context.check(driver().cuMemcpyDtoHAsync(host.data(), from.address(), link, handle), "cuMemcpyDtoHAsync");
  });
  rates.memory = best_rate(context, stream, 2.0 * static_cast<double>(memory), [&] {
    context.check(driver().cuMemcpyDtoDAsync(to.address(), from.address(), memory, handle),
                  "cuMemcpyDtoDAsync");
  });
  return rates;
}

}  // namespace exphil::cuda
