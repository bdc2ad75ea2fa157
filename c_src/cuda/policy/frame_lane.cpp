#include "cuda/policy/frame_lane.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "core/work/parallel.hpp"
#include "cuda/device/doorbell.hpp"
#include "cuda/device/stream_copy.hpp"
#include "cuda/policy/frame_rows.hpp"
#include "cuda/policy/wait.hpp"

namespace exphil::cuda {
namespace {

constexpr std::size_t kLine = policy::kArrivedWords * sizeof(std::uint64_t);

}  // namespace

FrameLane::FrameLane(Context& context, const PolicyDims& dims, const RowKernels& kernels,
                     const PolicyTuning& tuning, StreamPriority priority)
    : context_(context),
      dims_(dims),
      kernels_(kernels),
      tuning_(tuning),
      stream_(context, priority),
      done_(context) {}

void FrameLane::reserve(std::int64_t rows) {
  if (rows <= capacity_) return;
  const auto count = static_cast<std::size_t>(capacity_for(rows));
  PinnedPool& pinned = context_.pinned_pool();
  capacity_ = 0;  // until all have succeeded
  frames_ = pinned.allocate(count * static_cast<std::size_t>(dims_.frame_size()) * sizeof(float));
  states_ = pinned.allocate(count * sizeof(policy::StatePlace));
  out_ = pinned.allocate(count * static_cast<std::size_t>(dims_.outputs()) * sizeof(float));
  const std::size_t flags = kLine * (count + 1),
                    words =
                        count * static_cast<std::size_t>(kernels_.frame()->team()) * sizeof(std::uint64_t);
  arrived_ = pinned.allocate(flags), finished_ = pinned.allocate(words);
  std::memset(arrived_.data(), 0, flags), std::memset(finished_.data(), 0, words);
  const auto values = static_cast<std::size_t>(kernels_.values_ahead());
  if (values > 0) h_ = context_.device_pool().allocate(count * values * sizeof(float));
  if (!kernels_.frame()->has_outputs()) rest_.reserve(context_, dims_, static_cast<std::int64_t>(count));
  capacity_ = static_cast<std::int64_t>(count);
}

bool FrameLane::run(Slice& batch, const StartEvent& start, const SliceHooks& hooks) {
  reserve(batch.job.rows);
  finite_ = true;
  ++number_;
  BatchStates found{nullptr};
  CUevent after = nullptr;
  try {
    const bool early = tuning_.frames_late != 0;
    const auto launch_found = [&] { launch(batch, after, found.known ? found.group : nullptr); };
    copy_frames(batch, [&] {
      found = hooks.find();
      batch.states = found.places;
      after = start();
      if (hooks.before) hooks.before(batch);
      stream_copy(states_.data(), batch.states,
                  static_cast<std::size_t>(batch.job.rows) * sizeof(policy::StatePlace));
      stream_fence();
      if (early) launch_found();
    });
    if (!early) launch_found();
    if (found.group != nullptr) begin_next(batch, *found.group);
    if (hooks.is_right && !hooks.is_right()) return wait(batch.job.rows), false;
    if (hooks.meanwhile) hooks.meanwhile();
    wait(batch.job.rows);
    if (__atomic_load_n(arrived_.as<std::uint64_t>(), __ATOMIC_ACQUIRE) == number_) {
      // Frames came too late for the device, which has changed no state that is read.
      if (found.group != nullptr) found.group->forget();
      ++number_;
      let_all_begin(batch.job.rows);
      launch(batch, after, nullptr);
      wait(batch.job.rows);
    }
    copy_answers(batch);
    return finite_;
  } catch (...) {
    let_all_begin(batch.job.rows);
    context_.armed().cancel();
    context_.note(driver().cuStreamSynchronize(stream_.handle()), "cuStreamSynchronize");
    throw;
  }
}

void FrameLane::launch(const Slice& batch, CUevent after, const CudaGroupMemory* known) {
  policy::AwaitedFrames a{};
  a.states = as_pointer<policy::StatePlace>(states_.device_address());
  a.rows = batch.job.rows, a.seq = 1, a.sequences = static_cast<int>(batch.job.rows);
  a.missed = as_pointer<unsigned long long>(arrived_.device_address());
  a.arrived = a.missed + policy::kArrivedWords;
  a.finished = as_pointer<unsigned long long>(finished_.device_address());
  a.number = number_;
  a.nanoseconds = static_cast<unsigned long long>(tuning_.armed_microseconds) * 1000;
  a.frames = as_pointer<float>(frames_.device_address());
  RowJob rest;
  rest.rows = batch.job.rows, rest.batch = true;
  rest.out = as_pointer<float>(batch.pinned_out != 0 ? batch.pinned_out : out_.device_address());
  const bool has_outputs = kernels_.frame()->has_outputs();
  a.out = has_outputs ? rest.out : kernels_.hidden(rest_);
  context_.check(driver().cuStreamWaitEvent(stream_.handle(), after, 0), "cuStreamWaitEvent");
  if (known != nullptr) known->make_wait(stream_.handle());
  kernels_.enqueue_frame(stream_.handle(), a, known != nullptr ? known->products() : h_.as<float>(),
                         known != nullptr);
  if (!has_outputs) kernels_.enqueue_output(stream_.handle(), rest_, rest);
  done_.record(stream_.handle());
}

// The blocks say so some microseconds before the launch has ended as the driver sees it.
void FrameLane::wait(std::int64_t rows) {
  const int asks_driver = kernels_.frame()->has_outputs() ? 64 : 1;  // every so many times
  const auto* const words = finished_.as<std::uint64_t>();
  const std::int64_t all = kernels_.frame()->split(rows).tiles * kernels_.frame()->team();
  std::int64_t seen = 0;
  int asked = 0;
  const auto finished = [&] {
    while (asks_driver > 1 && seen < all && __atomic_load_n(words + seen, __ATOMIC_ACQUIRE) == number_)
      ++seen;
    return seen == all || (++asked % asks_driver == 0 && done_.done());
  };
  if (!spin_until(finished, tuning_.spin_microseconds)) done_.synchronize();
}

void FrameLane::begin_next(const Slice& batch, CudaGroupMemory& group) {
  const std::int64_t rows = batch.job.rows;
  group.make_wait(stream_.handle());
  kernels_.enqueue_ahead(stream_.handle(), group.next_places(batch.states, rows), rows, group.products());
  group.written_by(stream_.handle());
}

void FrameLane::let_begin(std::int64_t chunk) {
  auto* const words = arrived_.as<std::uint64_t>() + policy::kArrivedWords;
  __atomic_store_n(words + chunk * policy::kArrivedWords, number_, __ATOMIC_RELEASE);
}

void FrameLane::let_all_begin(std::int64_t rows) {
  const FrameLaunch::Split split = kernels_.frame()->split(rows);
  for (std::int64_t chunk = 0; chunk < split.tiles * split.chunks; ++chunk) let_begin(chunk);
}

// The first chunks of all tiles, then the second ones, and so on: each thread takes the next one. The calling
// thread finds the states and launches first, while others copy.
template <class Launch>
void FrameLane::copy_frames(const Slice& batch, Launch launch) {
  const std::int64_t rows = batch.job.rows, row_bytes = 4 * std::int64_t{dims_.frame_size()};
  const FrameLaunch::Split split = kernels_.frame()->split(rows);
  const std::int64_t all = split.tiles * split.chunks;
  const bool alone = rows * row_bytes < kAwaitedAlone;
  std::atomic<std::int64_t> next{0};
  const std::thread::id caller = std::this_thread::get_id();
  bool launched = false;
  const auto launch_first = [&] {
    if (!launched) launched = true, launch();
  };
  core::parallel_for(all, alone ? all : 1, [&](std::int64_t begin, std::int64_t end) {
    if (std::this_thread::get_id() == caller) launch_first();
    for (; begin < end; ++begin) {
      const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed), tile = i % split.tiles,
                         chunk = i / split.tiles, first = split.first(tile) + chunk * split.chunk_rows,
                         last = std::min(split.first(tile + 1), first + split.chunk_rows);
      if (first >= last) continue;  // a tile may have fewer
      if (!stream_frames(dims_, batch, first, last - first, frames_.as<char>() + first * row_bytes)) {
        finite_ = false;
      }
      stream_fence();
      let_begin(tile * split.chunks + chunk);
    }
  });
  launch_first();
}

void FrameLane::copy_answers(const Slice& batch) const {
  if (batch.pinned_out != 0) return;
  const std::int64_t rows = batch.job.rows, each = 4 * std::int64_t{dims_.outputs()};
  const bool alone = rows * each < kAnswersAlone;
  core::parallel_for(rows, alone ? rows : kCopiedAtOnce / each + 1,
                     [&](std::int64_t begin, std::int64_t end) {
                       hand_out_answers(dims_, batch, out_.as<float>(), begin, end - begin);
                     });
}

}  // namespace exphil::cuda
