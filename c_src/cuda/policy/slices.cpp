#include "cuda/policy/slices.hpp"

#include <algorithm>
#include <cstring>

#include "core/work/parallel.hpp"
#include "cuda/device/doorbell.hpp"
#include "cuda/device/stream_copy.hpp"
#include "cuda/policy/row_graphs.hpp"
#include "cuda/policy/wait.hpp"

namespace exphil::cuda {
namespace {

// The kernel writes outputs up to this size directly to host memory, because a copy costs 2 us. This concerns
// the lane's staging; core::kSmallestPooledResult is unrelated.
constexpr std::size_t kMostDirectOutput = 256 * 1024;
// Frames and outputs of fewer bytes are copied by the calling thread alone, because to wake others takes as
// long; of more by all, so much at a time.
constexpr std::int64_t kCopiedAlone = 256 * 1024, kCopiedAtOnce = 32 * 1024;
// Frames of so many bytes go to the device in two parts: the first three quarters are on their way while the
// others are copied. Larger slices are several to a call, and overlap.
constexpr std::int64_t kSentInTwo = 2 * 1024 * 1024;
// Fewer windows are faster through their rings, one after another: 42 us for each of 60 frames, where 32 of
// them take 507 us together (bench/results/gpu_policy.md).
constexpr std::int64_t kWindowsTogether = 10;

// Where a batch has more agents in a slice of each lane, its slices are as large as they may be.
constexpr std::int64_t kMostTogether = 1024;

// Powers of two, so that calls of different sizes soon need no more growth.
std::int64_t capacity_for(std::int64_t rows) {
  std::int64_t capacity = 64;
  while (capacity < rows) capacity *= 2;
  return capacity;
}

bool copied_alone(std::int64_t parts, std::int64_t bytes) {
  return parts * bytes < kCopiedAlone;
}

// Calls copy(begin, end) over `parts` parts of so many bytes.
template <class Copy>
void copy_parts(std::int64_t parts, std::int64_t bytes, Copy copy) {
  const std::int64_t at_once = std::max<std::int64_t>(1, kCopiedAtOnce / bytes);
  core::parallel_for(parts, copied_alone(parts, bytes) ? parts : at_once, copy);
}

}  // namespace

struct SlicePipeline::Slice {
  const float* obs = nullptr;             // {job.rows, d_input}
  const std::int64_t* rows = nullptr;     // of obs and of out, those of a batch; null: the first job.rows
  const float* const* windows = nullptr;  // or instead, for each sequence, {job.seq, d_input}
  // One for each row of a batch, or for each sequence; may be null.
  const policy::StatePlace* states = nullptr;
  float* out = nullptr;  // {out_rows, d_output}; null: not needed
  bool graphs = false;   // launched as a graph: the batch has other slices, which this thread sends next
  RowJob job;            // enqueue() fills in keep_states and out
};

struct SlicePipeline::Lane {
  Lane(Context& context, StreamPriority priority)
      : graphs(context), stream(context, priority), done(context) {}
  RowGraphs graphs;  // destroyed after the stream, which waits for their launches
  StreamLease stream;
  Event done;
  RowBuffers buffers;
  const Slice* pending = nullptr;
};

SlicePipeline::SlicePipeline(std::shared_ptr<Context> context, const PolicyDims& dims,
                             const RowKernels& kernels, const PolicyTuning& tuning, OrderedStream& stream,
                             StreamPriority priority)
    : context_(std::move(context)), dims_(dims), kernels_(kernels), tuning_(tuning), stream_(stream) {
  for (int i = 0; i < tuning.lanes; ++i) lanes_.push_back(std::make_unique<Lane>(*context_, priority));
}

SlicePipeline::~SlicePipeline() = default;

void SlicePipeline::batch(const policy::StatePlace* states, std::int64_t count, const BatchRows& rows) {
  std::vector<Slice> slices;
  const std::int64_t each = batch_rows(count);
  for (std::int64_t first = 0; first < count; first += each) {
    Slice slice;
    slice.job.batch = true;
    slice.job.rows = std::min(each, count - first);
    slice.job.decays_input = dims_.carried_decays();
    slice.graphs = tuning_.graphs != 0 && count > each;
    slice.obs = rows.obs, slice.out = rows.out;
    slice.states = states + first;
    if (rows.rows != nullptr) {
      slice.rows = rows.rows + first;
    } else {
      slice.obs += first * dims_.config.d_input, slice.out += first * dims_.outputs();
    }
    slices.push_back(slice);
  }
  run(slices, false);
}

// A multiple of agents_together: batches of any size then have slices of few sizes, for which there are
// graphs.
std::int64_t SlicePipeline::batch_rows(std::int64_t count) const {
  const std::int64_t least = std::max<std::int64_t>(1, tuning_.agents_together);
  const std::int64_t all = least * static_cast<std::int64_t>(lanes_.size());
  const std::int64_t each = least * std::max<std::int64_t>(1, (count + all - 1) / all);
  return each <= kMostTogether ? std::min(each, most_rows()) : most_rows();
}

void SlicePipeline::reserve_batch(std::int64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (count < 1) return;
  const std::int64_t each = batch_rows(count);
  for (std::size_t i = 0; i < lanes_.size() && static_cast<std::int64_t>(i) * each < count; ++i) {
    lanes_[i]->buffers.reserve(*context_, dims_, capacity_for(each));
  }
}

void SlicePipeline::sequence(const LongSequence& s) {
  const policy::StatePlace later{s.state.to, s.state.to};  // for the slices after the first
  std::vector<Slice> slices;
  for (std::int64_t first = 0; first < s.seq; first += most_rows()) {
    Slice slice;
    slice.job.rows = slice.job.seq = static_cast<int>(std::min(most_rows(), s.seq - first));
    slice.job.sequences = 1;
    slice.job.last_only = s.last_only;
    slice.job.decays_input = s.decays_input;
    slice.obs = s.frames + first * dims_.config.d_input;
    slice.states = first == 0 ? &s.state : &later;
    if (!s.last_only) slice.out = s.out + first * dims_.outputs();
    if (s.last_only && first + slice.job.rows == s.seq) slice.out = s.out;
    slices.push_back(slice);
  }
  run(slices, true);
}

void SlicePipeline::windows(const float* windows, std::int64_t count, std::int64_t seq, float* out) {
  std::vector<const float*> each;
  for (std::int64_t i = 0; i < count; ++i) each.push_back(windows + i * seq * dims_.config.d_input);
  run_windows(each.data(), count, seq, out);
}

bool SlicePipeline::answer(const core::AgentWindow* windows, std::int64_t count, float* out) {
  if (count < kWindowsTogether) return false;
  const std::int64_t seq = windows[0].ring_windows.seq;
  if (seq > most_rows()) return false;
  std::vector<const float*> each;
  for (std::int64_t i = 0; i < count; ++i) {
    if (windows[i].ring_windows.seq != seq) return false;
    each.push_back(windows[i].frames);
  }
  run_windows(each.data(), count, seq, out);
  return true;
}

void SlicePipeline::run_windows(const float* const* windows, std::int64_t count, std::int64_t seq,
                                float* out) {
  std::vector<Slice> slices;
  const std::int64_t per_slice = most_rows() / seq;
  for (std::int64_t first = 0; first < count; first += per_slice) {
    Slice slice;
    slice.job.sequences = static_cast<int>(std::min(per_slice, count - first));
    slice.job.seq = static_cast<int>(seq);
    slice.job.rows = slice.job.sequences * seq;
    slice.job.last_only = true;
    slice.job.decays_input = dims_.decays(seq);
    slice.windows = windows + first;
    slice.out = out + first * dims_.outputs();
    slices.push_back(slice);
  }
  if (!slices.empty()) run(slices, false);
}

void SlicePipeline::run(const std::vector<Slice>& slices, bool chained) {
  Event start(*context_);
  {
    const auto lock = stream_.enter();
    start.record(stream_.handle());
  }
  std::lock_guard<std::mutex> lock(mutex_);
  try {
    Lane* previous = nullptr;
    for (std::size_t i = 0; i < slices.size(); ++i) {
      Lane& lane = *lanes_[i % lanes_.size()];
      finish(lane);
      enqueue(lane, slices[i], chained && previous != &lane ? previous : nullptr, start.handle());
      previous = &lane;
    }
    for (std::size_t i = 0; i < lanes_.size(); ++i) finish(*lanes_[(slices.size() + i) % lanes_.size()]);
  } catch (...) {
    for (auto& lane : lanes_) {
      context_->armed().cancel();
      context_->note(driver().cuStreamSynchronize(lane->stream.handle()), "cuStreamSynchronize");
      lane->pending = nullptr;
    }
    throw;
  }
}

void SlicePipeline::stage(Lane& lane, const Slice& slice) {
  const std::int64_t rows = slice.job.rows, d_input = dims_.config.d_input;
  auto* staged = lane.buffers.host_in.as<float>();
  const std::size_t row_bytes = static_cast<std::size_t>(dims_.frame_size()) * 4;
  std::size_t bytes = static_cast<std::size_t>(rows) * row_bytes;
  if (slice.states != nullptr) {
    const auto count = static_cast<std::size_t>(slice.job.batch ? rows : slice.job.sequences);
    stream_copy(lane.buffers.host_in.as<char>() + bytes, slice.states, count * sizeof(*slice.states));
    bytes += count * sizeof(*slice.states);
  }
  std::size_t uploaded = 0;
  const auto upload = [&](std::size_t end) {
    context_->check(driver().cuMemcpyHtoDAsync(lane.buffers.in.address() + uploaded,
                                               lane.buffers.host_in.as<char>() + uploaded, end - uploaded,
                                               lane.stream.handle()),
                    "cuMemcpyHtoDAsync");
    uploaded = end;
  };
  // Of a batch and of a sequence each row is a unit; of windows each window.
  const std::int64_t length = slice.windows != nullptr ? slice.job.seq : 1, units = rows / length;
  const auto copy = [&](std::int64_t begin, std::int64_t end) {
    float* const to = staged + begin * length * dims_.frame_size();
    const bool one_after_another = slice.windows == nullptr && slice.rows == nullptr;
    if (one_after_another) dims_.stream_frames(slice.obs + begin * d_input, end - begin, to);
    for (std::int64_t i = begin; !one_after_another && i < end; ++i) {
      const float* const from =
          slice.windows != nullptr ? slice.windows[i] : slice.obs + slice.rows[i] * d_input;
      dims_.stream_frames(from, length, to + (i - begin) * length * dims_.frame_size());
    }
    stream_fence();
  };
  const std::int64_t unit_bytes = length * static_cast<std::int64_t>(row_bytes);
  const bool two = !copied_alone(units, unit_bytes) && units * unit_bytes <= kSentInTwo;
  const std::int64_t first = two ? units * 3 / 4 : 0;
  copy_parts(first, unit_bytes, copy);
  if (first > 0) upload(static_cast<std::size_t>(first * unit_bytes));
  copy_parts(units - first, unit_bytes,
             [&](std::int64_t begin, std::int64_t end) { copy(first + begin, first + end); });
  upload(bytes);
}

void SlicePipeline::enqueue(Lane& lane, const Slice& slice, const Lane* previous, CUevent after) {
  lane.buffers.reserve(*context_, dims_, capacity_for(slice.job.rows));
  const CUstream stream = lane.stream.handle();
  stage(lane, slice);
  context_->check(driver().cuStreamWaitEvent(stream, after, 0), "cuStreamWaitEvent");
  if (previous != nullptr) {
    context_->check(driver().cuStreamWaitEvent(stream, previous->done.handle(), 0), "cuStreamWaitEvent");
  }
  RowJob job = slice.job;
  job.keep_states = slice.states != nullptr;
  const std::int64_t out_rows = job.last_only ? job.sequences : job.rows;
  const auto bytes = static_cast<std::size_t>(out_rows * dims_.outputs()) * 4;
  const bool direct = bytes <= kMostDirectOutput;
  job.out = direct ? as_pointer<float>(lane.buffers.host_out.device_address()) : lane.buffers.out.as<float>();
  if (slice.graphs) {
    lane.graphs.enqueue(kernels_, stream, lane.buffers, job);
  } else {
    kernels_.enqueue(stream, lane.buffers, job);
  }
  if (!direct && slice.out != nullptr) {
    context_->check(
        driver().cuMemcpyDtoHAsync(lane.buffers.host_out.data(), lane.buffers.out.address(), bytes, stream),
        "cuMemcpyDtoHAsync");
  }
  lane.done.record(stream);
  lane.pending = &slice;
}

// Waits for the lane's slice and copies out its outputs.
void SlicePipeline::finish(Lane& lane) {
  if (lane.pending == nullptr) return;
  if (!spin_until([&] { return lane.done.done(); }, tuning_.spin_microseconds)) lane.done.synchronize();
  const Slice& slice = *lane.pending;
  lane.pending = nullptr;
  if (slice.out == nullptr) return;
  const std::int64_t rows = slice.job.last_only ? slice.job.sequences : slice.job.rows;
  const std::int64_t each = dims_.outputs();
  const auto* from = lane.buffers.host_out.as<float>();
  const auto copy = [&](std::int64_t to, std::int64_t begin, std::int64_t count) {
    std::memcpy(slice.out + to * each, from + begin * each, static_cast<std::size_t>(count * each) * 4);
  };
  copy_parts(rows, each * 4, [&](std::int64_t begin, std::int64_t end) {
    if (slice.rows == nullptr) return copy(begin, begin, end - begin);
    for (std::int64_t i = begin; i < end; ++i) copy(slice.rows[i], i, 1);
  });
}

}  // namespace exphil::cuda
