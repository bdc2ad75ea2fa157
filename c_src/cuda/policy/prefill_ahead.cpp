#include "cuda/policy/prefill_ahead.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "cuda/policy/wait.hpp"

namespace exphil::cuda {

class PrefillLanes::Prefill final : public core::PrefillAhead {
 public:
  Prefill(PrefillLanes& lanes, const core::State& initial)
      : lanes_(lanes), initial_(initial), state_(lanes.arena_), done_(*lanes.context_) {}
  ~Prefill() override {
    wait();
    const std::lock_guard<std::mutex> lock(lanes_.mutex_);
    --lanes_.prefills_;
  }

  void begin(const float* frames, std::int64_t seq) override {
    const ContextGuard guard(*lanes_.context_);
    wait();
    const policy::StatePlace place{as_pointer<float>(state_of(*lanes_.arena_, initial_).slot()),
                                   as_pointer<float>(state_.slot())};
    state_.set(state_.slot(), lanes_.arena_->stamps(1));
    const std::lock_guard<std::mutex> lock(lanes_.mutex_);
    RowLane& lane = lanes_.free_lane();
    try {
      lanes_.enqueue(lane, frames, seq, place);
      done_.record(lane.stream.handle());
    } catch (...) {
      lanes_.context_->armed().cancel();
      lanes_.context_->note(driver().cuStreamSynchronize(lane.stream.handle()), "cuStreamSynchronize");
      throw;
    }
    under_way_ = true;
  }

  bool done() override {
    if (!under_way_) return true;
    const ContextGuard guard(*lanes_.context_);
    return done_.done();
  }

  core::State& state() override { return state_; }

 private:
  // A failure of what was under way is that of the next begin() or step.
  void wait() noexcept {
    if (!std::exchange(under_way_, false)) return;
    try {
      await_event(done_, lanes_.tuning_.spin_microseconds);
    } catch (...) {
    }
  }

  PrefillLanes& lanes_;
  const core::State& initial_;
  CudaState state_;
  Event done_;
  bool under_way_ = false;  // since the last wait()
};

PrefillLanes::PrefillLanes(std::shared_ptr<Context> context, const PolicyDims& dims,
                           const PolicyTuning& tuning, const RowKernels& kernels,
                           const std::shared_ptr<StateArena>& arena)
    : context_(std::move(context)), dims_(dims), tuning_(tuning), kernels_(kernels), arena_(arena) {}

PrefillLanes::~PrefillLanes() = default;

std::unique_ptr<core::PrefillAhead> PrefillLanes::make(std::int64_t seq, const core::State& initial) {
  if (tuning_.window_ahead == 0 || seq > tuning_.slice_rows) return nullptr;
  const ContextGuard guard(*context_);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (prefills_ == kMostPrefills) return nullptr;
  reserve(seq);
  auto made = std::make_unique<Prefill>(*this, initial);
  ++prefills_;
  return made;
}

// With a lane for each of the first that ask, so that no begin() allocates.
void PrefillLanes::reserve(std::int64_t seq) {
  rows_ = std::max(rows_, capacity_for(seq));
  if (lanes_.size() < kLanesInAdvance) {
    lanes_.push_back(std::make_unique<RowLane>(*context_, StreamPriority::low));
  }
  for (auto& lane : lanes_) {
    if (lane->buffers.capacity >= rows_) continue;
    lane->done.synchronize();
    lane->reserve(*context_, dims_, kernels_, rows_);
  }
}

// The thread that waits here has nothing to do that is urgent, and sleeps meanwhile.
RowLane& PrefillLanes::free_lane() {
  for (;;) {
    for (auto& lane : lanes_) {
      if (lane->done.done()) return *lane;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void PrefillLanes::enqueue(RowLane& lane, const float* frames, std::int64_t seq, policy::StatePlace place) {
  RowBuffers& buffers = lane.buffers;
  const CUstream stream = lane.stream.handle();
  const auto bytes = static_cast<std::size_t>(seq * dims_.frame_size()) * sizeof(float);
  auto* const staged = buffers.host_in.as<char>();
  dims_.pad_frames(frames, seq, buffers.host_in.as<float>());
  std::memcpy(staged + bytes, &place, sizeof(place));
  context_->check(driver().cuMemcpyHtoDAsync(buffers.in.address(), staged, bytes + sizeof(place), stream),
                  "cuMemcpyHtoDAsync");
  RowJob job;
  job.rows = seq, job.seq = static_cast<int>(seq), job.sequences = 1;
  job.last_only = job.keep_states = true;
  job.decays_input = dims_.carried_decays();
  job.out = buffers.out.as<float>();
  kernels_.enqueue(stream, buffers, job);
  lane.done.record(stream);
}

}  // namespace exphil::cuda
