#include "cuda/policy/window.hpp"

#include <algorithm>
#include <cstring>

#include "core/tensor.hpp"
#include "kernels/policy/window_layout.cuh"

namespace exphil::cuda {
namespace {

// More frames than this are copied to the device before the products read them.
constexpr int kMostDirectFrames = 4;

std::size_t ring_bytes(std::int64_t slots, std::int64_t width) {
  const std::int64_t floats =
      core::checked_multiply(core::checked_multiply(slots, 2, ":window"), width, ":window");
  return static_cast<std::size_t>(core::checked_multiply(floats, 4, ":window"));
}

}  // namespace

KernelSpec window_kernel(const PolicyDims& dims) {
  return {"policy/window.cu", "policy_window", dims.defines()};
}

DeviceRing::DeviceRing(Context& context, const PolicyDims& dims, std::int64_t ring_slots,
                       std::shared_ptr<std::atomic<std::size_t>> held)
    : h(context.device_pool().allocate(ring_bytes(ring_slots, dims.model()))),
      xz(context.device_pool().allocate(ring_bytes(ring_slots, 2 * dims.inner()))),
      slots(ring_slots),
      held_(std::move(held)) {
  held_->fetch_add(h.bytes() + xz.bytes());
}

WindowKernel::WindowKernel(std::shared_ptr<Context> context, const PolicyDims& dims,
                           const PolicyTuning& tuning, const RowKernels& rows, OrderedStream& stream)
    : context_(std::move(context)),
      dims_(dims),
      stream_(stream),
      held_(std::make_shared<std::atomic<std::size_t>>(0)),
      spin_microseconds_(tuning.spin_microseconds),
      inline_frame_(tuning.inline_obs != 0 && dims.input() <= policy::kMostInlineObs) {
  const long long bytes = policy::window_shared_bytes(dims);
  const DeviceProperties& device = context_->properties();
  if (tuning.window_blocks == 0 || bytes == 0 || bytes > device.max_shared_per_block) return;
  CUfunction function = context_->kernels().get(window_kernel(dims), static_cast<std::size_t>(bytes));
  int per_multiprocessor = 0;
  context_->check(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
                      &per_multiprocessor, function, policy::kWindowThreads, static_cast<std::size_t>(bytes)),
                  "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  if (per_multiprocessor < 1) return;
  blocks_ = static_cast<unsigned>(policy::power_of_two_within(
      std::min(device.multiprocessors * per_multiprocessor, tuning.window_blocks)));
  shared_bytes_ = static_cast<unsigned>(bytes);
  weights_ = rows.window_weights();
  barrier_ = context_->device_pool().allocate(sizeof(unsigned));
  context_->check(driver().cuMemsetD8Async(barrier_.address(), 0, sizeof(unsigned), stream.handle()),
                  "cuMemsetD8Async");
  function_ = function;
}

void WindowKernel::reserve(std::int64_t rows) {
  if (rows <= buffers_.capacity) return;
  std::int64_t capacity = 64;
  while (capacity < rows) capacity *= 2;
  std::size_t all = 0;
  const auto device = [&](std::int64_t width) {
    DeviceBuffer buffer = context_->device_pool().allocate(static_cast<std::size_t>(capacity * width) * 4);
    all += buffer.bytes();
    return buffer;
  };
  Buffers made;
  made.host_in = context_->pinned_pool().allocate(static_cast<std::size_t>(capacity * dims_.input()) * 4);
  made.outputs = TaggedOutputs(*context_, static_cast<std::size_t>(capacity * dims_.output()));
  made.in = device(dims_.input());
  made.front_h = device(dims_.model()), made.front_xz = device(2 * dims_.inner());
  made.h = device(dims_.model()), made.xz = device(2 * dims_.inner());
  made.u = device(dims_.inner()), made.projection = device(dims_.projection());
  made.active_dt = device(dims_.inner() + 1), made.y = device(dims_.inner());
  made.last_h = device(dims_.model());
  if (dims_.d_hidden > 0) made.hidden = device(dims_.hidden());
  made.capacity = capacity;
  buffers_ = std::move(made);
  buffer_bytes_ = all;
}

std::unique_ptr<DeviceRing> WindowKernel::new_ring(std::int64_t slots) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    reserve(kMostRows);  // so that no later call allocates
  }
  return std::make_unique<DeviceRing>(*context_, dims_, slots, held_);
}

void WindowKernel::run(DeviceRing& ring, const core::RingWindows& windows, float* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::int64_t per_launch = std::max<std::int64_t>(1, kMostRows / windows.seq);
  for (std::int64_t first = 0; first < windows.count; first += per_launch) {
    policy::WindowArguments arguments = weights_;
    const std::int64_t count = std::min(per_launch, windows.count - first);
    // The fresh frames of the windows before these are in the ring, those of later ones not yet.
    const std::int64_t end = first + windows.seq + count - 1, all = windows.seq + windows.count - 1;
    const std::int64_t held = std::max(all - windows.fresh, first == 0 ? 0 : first + windows.seq - 1);
    arguments.front_h = ring.h.as<float>(), arguments.front_xz = ring.xz.as<float>();
    arguments.slots = static_cast<int>(ring.slots);
    arguments.first = static_cast<int>((windows.first + first) % ring.slots);
    arguments.front_step = 1;
    arguments.fresh = static_cast<int>(std::max<std::int64_t>(0, end - held));
    arguments.seq = static_cast<int>(windows.seq), arguments.count = static_cast<int>(count);
    launch(arguments, windows.obs + (held - (all - windows.fresh)) * dims_.d_input,
           out + first * dims_.output());
  }
}

void WindowKernel::run(const float* frames, std::int64_t count, std::int64_t seq, float* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  reserve(count * seq);
  policy::WindowArguments arguments = weights_;
  arguments.front_h = buffers_.front_h.as<float>(), arguments.front_xz = buffers_.front_xz.as<float>();
  arguments.front_step = arguments.seq = static_cast<int>(seq);
  arguments.count = static_cast<int>(count);
  arguments.fresh = static_cast<int>(count * seq);
  launch(arguments, frames, out);
}

// Under mutex_. obs: {arguments.fresh, d_input}.
void WindowKernel::launch(policy::WindowArguments arguments, const float* obs, float* out) {
  const Buffers& b = buffers_;
  const auto width = static_cast<std::size_t>(dims_.d_input),
             stride = static_cast<std::size_t>(dims_.input());
  auto* const staged = b.host_in.as<float>();
  for (std::size_t i = 0; i < static_cast<std::size_t>(arguments.fresh); ++i) {
    std::memcpy(staged + i * stride, obs + i * width, width * 4);
    std::fill(staged + i * stride + width, staged + (i + 1) * stride, 0.0f);
  }
  auto* const mapped = as_pointer<float>(b.host_in.device_address());
  if (arguments.fresh > kMostDirectFrames) {
    arguments.obs = b.in.as<float>(), arguments.host_obs = mapped;
  } else if (arguments.fresh != 1 || !inline_frame_) {
    arguments.obs = mapped;
  }
  arguments.h = b.h.as<float>(), arguments.xz = b.xz.as<float>(), arguments.u = b.u.as<float>();
  arguments.projection = b.projection.as<float>(), arguments.active_dt = b.active_dt.as<float>();
  arguments.y = b.y.as<float>(), arguments.last_h = b.last_h.as<float>();
  arguments.hidden = b.hidden.as<float>();
  arguments.tagged = b.outputs.device_words();
  arguments.barrier = barrier_.as<unsigned>();
  arguments.decays_input = dims_.config.spec.decays_input(arguments.seq) ? 1 : 0;
  arguments.epsilon = dims_.config.norm_epsilon;
  if (++sequence_ == 0) ++sequence_;
  arguments.sequence = sequence_;
  try {
    {
      const auto lock = stream_.enter();
      void* parameters[] = {&arguments, staged};
      context_->check(driver().cuLaunchCooperativeKernel(function_, blocks_, 1, 1, policy::kWindowThreads, 1,
                                                         1, shared_bytes_, stream_.handle(), parameters),
                      "cuLaunchCooperativeKernel(policy_window)");
    }
    b.outputs.collect(*context_, stream_.handle(), arguments.sequence,
                      std::int64_t{arguments.count} * dims_.output(), spin_microseconds_, out);
  } catch (...) {
    stream_.drain();
    throw;
  }
}

}  // namespace exphil::cuda
