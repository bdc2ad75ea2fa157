#include "cuda/policy/walked_windows.hpp"

#include <algorithm>
#include <cstring>

#include "core/tensor.hpp"
#include "cuda/device/slow_call.hpp"
#include "cuda/policy/wait.hpp"
#include "cuda/policy/window_ring.hpp"

namespace exphil::cuda {

// The frames are in host memory too, for calls of several windows. A row on the device is right where
// `on_device_` says so: what a call computes counts when the call has succeeded.
class WalkedWindows::Ring final : public ObservationRing, public core::SplitWindow {
 public:
  Ring(WalkedWindows& windows, std::int64_t slots)
      : ObservationRing(windows.policy_, slots),
        windows_(windows),
        held_(windows.held_),
        rows_(windows.context_->device_pool().allocate(static_cast<std::size_t>(slots * windows.row_values_) *
                                                       sizeof(float))),
        on_device_(static_cast<std::size_t>(slots)) {
    held_->fetch_add(rows_.bytes());
  }
  ~Ring() override {
    abandon();
    held_->fetch_sub(rows_.bytes());
  }

  void answer(const core::RingWindows& windows, float* out) override {
    if (windows.count > 1) {
      forget_fresh(windows);
      return ObservationRing::answer(windows, out);
    }
    start(windows, windows_.take_lane(windows.seq, true));
    finish(out);
  }
  core::SplitWindow* split() override { return this; }

  void begin(const core::RingWindows& window) override {
    windows_.context_->require_alive();
    if (SlowCall::in_progress()) throw core::WouldWait{};
    start(window, windows_.take_lane(window.seq, false));
  }
  void start(const core::RingWindows& window, std::unique_ptr<RowLane> lane);
  bool finish_within(std::chrono::microseconds time, float* out) override;
  void finish(float* out) override;
  void abandon() noexcept {
    if (lane_) drop();
  }

 private:
  Context& context() const { return *windows_.context_; }
  std::int64_t slot(std::int64_t i) const { return (first_ + i) % slots(); }
  void forget_fresh(const core::RingWindows& windows);
  void enqueue_rows(std::int64_t fresh);
  void enqueue();
  void succeed(float* out);
  void drop() noexcept;

  WalkedWindows& windows_;
  const std::shared_ptr<std::atomic<std::size_t>> held_;
  const DeviceBuffer rows_;  // {slots, row_values_}
  std::vector<bool> on_device_;
  // The answer under way; no lane where there is none.
  std::unique_ptr<RowLane> lane_;
  std::int64_t first_ = 0, seq_ = 0;
};

void WalkedWindows::Ring::forget_fresh(const core::RingWindows& windows) {
  const std::int64_t all = windows.seq + windows.count - 1;
  for (std::int64_t i = all - windows.fresh; i < all; ++i) {
    on_device_[static_cast<std::size_t>((windows.first + i) % slots())] = false;
  }
}

void WalkedWindows::Ring::start(const core::RingWindows& window, std::unique_ptr<RowLane> lane) {
  lane_ = std::move(lane);
  try {
    const ContextGuard guard(context());
    put(window);
    forget_fresh(window);
    first_ = window.first, seq_ = window.seq;
    windows_.reserve(*lane_, seq_);
    std::int64_t known = 0;
    while (known < seq_ && on_device_[static_cast<std::size_t>(slot(known))]) ++known;
    if (known < seq_) enqueue_rows(seq_ - known);
    enqueue();
  } catch (...) {
    drop();
    throw;
  }
}

// What is kept of the last `fresh` frames of the window.
void WalkedWindows::Ring::enqueue_rows(std::int64_t fresh) {
  const PolicyDims& dims = windows_.dims_;
  RowBuffers& buffers = lane_->buffers;
  const CUstream stream = lane_->stream.handle();
  const std::int64_t width = dims.frame_size(), from = seq_ - fresh;
  auto* const staged = buffers.host_in.as<float>();
  dims.pad_frames(frame(slot(from)), fresh, staged);
  const bool direct = fresh <= kMostDirectFrames;
  const auto* const frames =
      as_pointer<float>(direct ? buffers.host_in.device_address() : buffers.in.address());
  if (!direct) {
    const auto bytes = static_cast<std::size_t>(fresh * width) * sizeof(float);
    context().check(driver().cuMemcpyHtoDAsync(buffers.in.address(), staged, bytes, stream),
                    "cuMemcpyHtoDAsync");
  }
  for (std::int64_t done = 0; done < fresh;) {  // up to the last slot, and from the first one on
    const std::int64_t at = slot(from + done);
    RowJob job;
    job.rows = std::min(fresh - done, slots() - at);
    job.frames = frames + done * width;
    windows_.kernels_.enqueue_lead(stream, buffers, job, rows_.as<float>() + at * windows_.row_values_);
    done += job.rows;
  }
}

void WalkedWindows::Ring::enqueue() {
  RowJob job;
  job.rows = seq_, job.seq = static_cast<int>(seq_), job.sequences = 1;
  job.last_only = true;
  job.lead = {rows_.as<float>(), static_cast<int>(first_), static_cast<int>(slots())};
  job.out = as_pointer<float>(lane_->buffers.host_out.device_address());
  const CUstream stream = lane_->stream.handle();
  windows_.kernels_.enqueue(stream, lane_->buffers, job);
  lane_->done.record(stream);
}

bool WalkedWindows::Ring::finish_within(std::chrono::microseconds time, float* out) {
  try {
    const ContextGuard guard(context());
    if (!spin_until([&] { return lane_->done.done(); }, time.count())) return false;
  } catch (...) {
    drop();
    throw;
  }
  return succeed(out), true;
}

void WalkedWindows::Ring::finish(float* out) {
  try {
    const ContextGuard guard(context());
    await_event(lane_->done, windows_.tuning_.spin_microseconds);
  } catch (...) {
    drop();
    throw;
  }
  succeed(out);
}

void WalkedWindows::Ring::succeed(float* out) {
  for (std::int64_t i = 0; i < seq_; ++i) on_device_[static_cast<std::size_t>(slot(i))] = true;
  std::memcpy(out, lane_->buffers.host_out.data(),
              static_cast<std::size_t>(windows_.dims_.outputs()) * sizeof(float));
  windows_.give(std::move(lane_));
}

// Waits for the device, and knows none of the rows that were written.
void WalkedWindows::Ring::drop() noexcept {
  context().armed().cancel();
  context().note(driver().cuStreamSynchronize(lane_->stream.handle()), "cuStreamSynchronize");
  std::fill(on_device_.begin(), on_device_.end(), false);
  windows_.give(std::move(lane_));
}

WalkedWindows::WalkedWindows(std::shared_ptr<Context> context, const PolicyDims& dims,
                             const PolicyTuning& tuning, const RowKernels& kernels, core::Policy& policy)
    : context_(std::move(context)),
      dims_(dims),
      tuning_(tuning),
      kernels_(kernels),
      policy_(policy),
      row_values_(tuning.window_rings == 0 ? 0 : kernels.lead_values()),
      held_(std::make_shared<std::atomic<std::size_t>>(0)) {}

WalkedWindows::~WalkedWindows() = default;

// With a lane for each of the first rings, so that no answer allocates.
std::unique_ptr<core::FrameRing> WalkedWindows::new_ring(std::int64_t slots) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    rows_ = std::max(rows_, slots);
    for (auto& lane : lanes_) reserve(*lane, rows_);
    if (made_ < kLanesInAdvance) lanes_.push_back(make_lane());
  }
  return std::make_unique<Ring>(*this, slots);
}

bool WalkedWindows::answer(core::AgentWindow* windows, std::int64_t count, float* out) {
  std::vector<Ring*> rings;
  for (std::int64_t i = 0; i < count; ++i) {
    auto* const ring = dynamic_cast<Ring*>(windows[i].ring);
    if (ring == nullptr) return false;
    rings.push_back(ring);
  }
  try {
    for (std::int64_t i = 0; i < count; ++i) {
      rings[static_cast<std::size_t>(i)]->start(windows[i].ring_windows,
                                                take_lane(windows[i].ring_windows.seq, true));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      rings[static_cast<std::size_t>(i)]->finish(out + i * dims_.outputs());
      windows[i].in_ring = true;
    }
  } catch (...) {
    for (Ring* const ring : rings) ring->abandon();
    throw;
  }
  return true;
}

std::unique_ptr<RowLane> WalkedWindows::make_lane() {
  auto lane = std::make_unique<RowLane>(*context_, StreamPriority::high);
  reserve(*lane, rows_);
  lanes_.reserve(made_ + 1);  // so that give() allocates nothing
  ++made_;
  return lane;
}

void WalkedWindows::reserve(RowLane& lane, std::int64_t rows) const {
  lane.reserve(*context_, dims_, kernels_, rows);
}

// Where none is free, a call that may wait makes one: those that have them may themselves wait for a thread.
std::unique_ptr<RowLane> WalkedWindows::take_lane(std::int64_t rows, bool may_wait) {
  std::unique_ptr<RowLane> lane;
  {
    const auto lock = may_wait ? std::unique_lock<std::mutex>(mutex_) : lock_soon(mutex_);
    if (lanes_.empty() && may_wait) lanes_.push_back(make_lane());
    if (lanes_.empty() || (!may_wait && lanes_.back()->buffers.capacity < rows)) throw core::WouldWait{};
    lane = std::move(lanes_.back());
    lanes_.pop_back();
  }
  return lane;
}

void WalkedWindows::give(std::unique_ptr<RowLane> lane) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  lanes_.push_back(std::move(lane));
}

}  // namespace exphil::cuda
