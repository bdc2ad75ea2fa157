#include "cuda/policy/armed.hpp"

#include "core/error.hpp"

namespace exphil::cuda {

namespace {

constexpr int kOldestArmed = 90;  // thread-block clusters: blocks that wait for another one issue nothing

void require_clusters(const DeviceProperties& device) {
  if (device.architecture() >= kOldestArmed) return;
  core::fail(core::ErrorKind::unsupported, ":latency",
             "latency: :armed needs a GPU of compute capability 9.0 or later; ", device.name, " has ",
             device.compute_major, ".", device.compute_minor);
}

}  // namespace

ArmedLaunches::ArmedLaunches(Context& context, TeamRunner& one, Doorbell& doorbell, const PolicyDims& dims,
                             std::int64_t wait_microseconds)
    : one_(one),
      doorbell_(doorbell),
      d_input_(static_cast<std::size_t>(dims.config.d_input)),
      wait_nanoseconds_(static_cast<unsigned long long>(wait_microseconds) * 1000) {
  require_clusters(context.properties());
  one_.prepare_armed();
  words_ = context.pinned_pool().allocate((kObs + d_input_) * sizeof(std::uint64_t));
  std::memset(words_.data(), 0, words_.bytes());  // no launch has number 0
  doorbell_.open(words() + kCancelled);
}

bool ArmedLaunches::launch(CUstream stream, const policy::StepArguments& arguments) {
  if (!doorbell_.arm(arguments.sequence)) return false;
  try {
    launch(stream, arguments, wait_nanoseconds_);
  } catch (...) {
    doorbell_.take(arguments.sequence);
    throw;
  }
  return true;
}

void ArmedLaunches::warm_up(CUstream stream, unsigned number) {
  policy::StepArguments arguments{};
  arguments.count = 1;
  arguments.sequence = number;
  launch(stream, arguments, 0);
}

void ArmedLaunches::launch(CUstream stream, const policy::StepArguments& arguments,
                           unsigned long long wait_nanoseconds) {
  // A launch that ends in this moment may be overlooked; collect_rung() finds out then.
  if (static_cast<unsigned>(arguments.sequence - last_ended()) > 2 * kNumberWindow) {
    __atomic_store_n(words() + kEnded, std::uint64_t{arguments.sequence - kNumberWindow}, __ATOMIC_RELAXED);
  }
  const CUdeviceptr base = words_.device_address();
  policy::ArmedArguments armed{};
  armed.obs = as_pointer<unsigned long long>(base + kObs * sizeof(std::uint64_t));
  armed.cancelled = as_pointer<unsigned long long>(base + kCancelled * sizeof(std::uint64_t));
  armed.ended = as_pointer<unsigned long long>(base + kEnded * sizeof(std::uint64_t));
  armed.nanoseconds = wait_nanoseconds;
  one_.launch_armed(stream, arguments, armed);
}

bool ArmedLaunches::ring(unsigned number, const float* obs) {
  if (!doorbell_.take(number) || ended(number)) return false;
  std::uint64_t* const to = words() + kObs;
  for (std::size_t i = 0; i < d_input_; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, obs + i, sizeof(bits));
    // The device reads meanwhile: an 8-byte store is never torn.
    __atomic_store_n(to + i, std::uint64_t{number} << 32 | bits, __ATOMIC_RELAXED);
  }
  return true;
}

}  // namespace exphil::cuda
