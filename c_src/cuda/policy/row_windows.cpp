#include "cuda/policy/row_windows.hpp"

#include <algorithm>
#include <cstring>

#include "cuda/device/slow_call.hpp"
#include "cuda/policy/kept_ring.hpp"
#include "cuda/policy/wait.hpp"

namespace exphil::cuda {

class RowWindows::Ring final : public CudaRing, public core::SplitWindow {
 public:
  Ring(RowWindows& windows, std::int64_t slots)
      : windows_(windows),
        held_(windows.held_),
        slots_(slots),
        rows_(windows.context_->device_pool().allocate(static_cast<std::size_t>(slots) *
                                                       static_cast<std::size_t>(windows.values_.all()) *
                                                       sizeof(float))) {
    held_->fetch_add(rows_.bytes());
    kept_.hidden = rows_.as<float>(), kept_.lead = rows_.as<float>() + slots * windows.values_.hidden;
    kept_.slots = static_cast<int>(slots), kept_.copies = 1;
  }
  ~Ring() override {
    if (lane_) drop();
    held_->fetch_sub(rows_.bytes());
  }

  const policy::KeptRing* kept() const override { return &kept_; }
  void answer(const core::RingWindows& windows, float* out) override;
  core::SplitWindow* split() override { return windows_.may_split_ ? this : nullptr; }

  void begin(const core::RingWindows& window) override {
    windows_.context_->require_alive();
    if (SlowCall::in_progress()) throw core::WouldWait{};
    start(window, windows_.take_lane(window.seq, false));
  }
  void start(const core::RingWindows& window, std::unique_ptr<RowLane> lane);
  bool finish_within(std::chrono::microseconds time, float* out) override;
  void finish(float* out) override;

 private:
  Context& context() const { return *windows_.context_; }
  const float* stage(const core::RingWindows& window);
  void enqueue(const core::RingWindows& window, const float* frames);
  void succeed(float* out);
  void drop() noexcept;

  RowWindows& windows_;
  const std::shared_ptr<std::atomic<std::size_t>> held_;
  const std::int64_t slots_;
  const DeviceBuffer rows_;  // {slots} hidden values, then {slots} of the leading product
  policy::KeptRing kept_{};
  std::unique_ptr<RowLane> lane_;  // of the answer under way; none where there is none
};

// Several windows of a session, which share most of their frames, are answered as those of several sessions.
void RowWindows::Ring::answer(const core::RingWindows& windows, float* out) {
  if (windows.count == 1) {
    start(windows, windows_.take_lane(windows.seq, true));
    return finish(out);
  }
  const std::int64_t held = windows.seq + windows.count - 1 - windows.fresh;  // frames
  std::vector<core::AgentWindow> each(static_cast<std::size_t>(windows.count));
  for (std::int64_t i = 0; i < windows.count; ++i) {
    core::RingWindows& window = each[static_cast<std::size_t>(i)].ring_windows;
    const std::int64_t first_fresh = std::max(held, i);
    each[static_cast<std::size_t>(i)].ring = this;
    window.first = (windows.first + i) % slots_, window.seq = windows.seq;
    window.fresh = std::max<std::int64_t>(0, i + windows.seq - first_fresh);
    window.obs = windows.obs + (first_fresh - held) * windows_.dims_.config.d_input;
  }
  const ContextGuard guard(context());
  if (windows_.slices_.answer(each.data(), windows.count, out)) return;
  for (const core::AgentWindow& window : each) {
    answer(window.ring_windows, out);
    out += windows_.dims_.outputs();
  }
}

void RowWindows::Ring::start(const core::RingWindows& window, std::unique_ptr<RowLane> lane) {
  lane_ = std::move(lane);
  try {
    const ContextGuard guard(context());
    windows_.reserve(*lane_, window.seq);
    enqueue(window, stage(window));
  } catch (...) {
    drop();
    throw;
  }
}

// Where the device reads the fresh frames.
const float* RowWindows::Ring::stage(const core::RingWindows& window) {
  const RowBuffers& buffers = lane_->buffers;
  auto* const staged = buffers.host_in.as<float>();
  windows_.dims_.pad_frames(window.obs, window.fresh, staged);
  if (window.fresh <= kMostDirectFrames) return as_pointer<float>(buffers.host_in.device_address());
  const auto bytes = static_cast<std::size_t>(window.fresh * windows_.dims_.frame_size()) * sizeof(float);
  context().check(driver().cuMemcpyHtoDAsync(buffers.in.address(), staged, bytes, lane_->stream.handle()),
                  "cuMemcpyHtoDAsync");
  return buffers.in.as<float>();
}

void RowWindows::Ring::enqueue(const core::RingWindows& window, const float* frames) {
  RowJob job;
  job.rows = window.seq, job.seq = static_cast<int>(window.seq), job.sequences = 1;
  job.last_only = true;
  job.decays_input = windows_.dims_.decays(window.seq);
  job.kept.emplace();
  job.kept->fresh = window.fresh, job.kept->frames = frames;
  policy::KeptRing& ring = job.kept->ring = kept_;
  ring.first = static_cast<int>(window.first), ring.fresh = static_cast<int>(window.fresh);
  job.out = as_pointer<float>(lane_->buffers.host_out.device_address());
  const CUstream stream = lane_->stream.handle();
  windows_.kernels_.enqueue(stream, lane_->buffers, job);
  lane_->done.record(stream);
}

bool RowWindows::Ring::finish_within(std::chrono::microseconds time, float* out) {
  try {
    const ContextGuard guard(context());
    if (!spin_until([&] { return lane_->done.done(); }, time.count())) return false;
  } catch (...) {
    drop();
    throw;
  }
  return succeed(out), true;
}

void RowWindows::Ring::finish(float* out) {
  try {
    const ContextGuard guard(context());
    await_event(lane_->done, windows_.tuning_.spin_microseconds);
  } catch (...) {
    drop();
    throw;
  }
  succeed(out);
}

void RowWindows::Ring::succeed(float* out) {
  std::memcpy(out, lane_->buffers.host_out.data(),
              static_cast<std::size_t>(windows_.dims_.outputs()) * sizeof(float));
  windows_.give(std::move(lane_));
}

// Waits for the device. What it has written of frames that the ring had are the same values again.
void RowWindows::Ring::drop() noexcept {
  context().armed().cancel();
  context().note(driver().cuStreamSynchronize(lane_->stream.handle()), "cuStreamSynchronize");
  windows_.give(std::move(lane_));
}

RowWindows::RowWindows(std::shared_ptr<Context> context, const PolicyDims& dims, const PolicyTuning& tuning,
                       const RowKernels& kernels, SlicePipeline& slices)
    : context_(std::move(context)),
      dims_(dims),
      tuning_(tuning),
      kernels_(kernels),
      slices_(slices),
      values_(kernels.kept_values()),
      may_split_(kernels.launches() <= kMostLaunches),
      held_(std::make_shared<std::atomic<std::size_t>>(0)) {}

RowWindows::~RowWindows() = default;

// With a lane for each of the first rings, so that no answer allocates.
std::unique_ptr<core::FrameRing> RowWindows::new_ring(std::int64_t slots) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    rows_ = std::max(rows_, slots);
    for (auto& lane : lanes_) reserve(*lane, rows_);
    if (made_ < kLanesInAdvance) lanes_.push_back(make_lane());
  }
  return std::make_unique<Ring>(*this, slots);
}

std::unique_ptr<RowLane> RowWindows::make_lane() {
  auto lane = std::make_unique<RowLane>(*context_, StreamPriority::high);
  reserve(*lane, rows_);
  lanes_.reserve(made_ + 1);  // so that give() allocates nothing
  ++made_;
  return lane;
}

void RowWindows::reserve(RowLane& lane, std::int64_t rows) const {
  lane.reserve(*context_, dims_, kernels_, rows);
}

// Where none is free, a call that may wait makes one: those that have them may themselves wait for a thread.
std::unique_ptr<RowLane> RowWindows::take_lane(std::int64_t rows, bool may_wait) {
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

void RowWindows::give(std::unique_ptr<RowLane> lane) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  lanes_.push_back(std::move(lane));
}

}  // namespace exphil::cuda
