#include "cuda/policy/slice_lanes.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "core/work/parallel.hpp"
#include "cuda/device/doorbell.hpp"
#include "cuda/device/stream_copy.hpp"
#include "cuda/policy/frame_rows.hpp"
#include "cuda/policy/row_graphs.hpp"
#include "cuda/policy/wait.hpp"

namespace exphil::cuda {
namespace {

// The kernel writes outputs up to this size directly to host memory, because a copy costs 2 us. This concerns
// the lane's staging; core::kSmallestPooledResult is unrelated.
constexpr std::size_t kMostDirectOutput = 256 * 1024;
// The first frames of a call, of so many bytes, go to the device in two parts: three quarters are on their
// way while the others are copied. What follows overlaps in any case.
constexpr std::int64_t kSentWhole = 256 * 1024, kSentInTwo = 2 * 1024 * 1024;

}  // namespace

// Rows that are copied at a time: the answers of the lane's pending slice, or frames of its next one, which
// go to the device in one part or two. A unit of frames is a row, or a window.
struct SliceLanes::Piece {
  static constexpr int kAnswers = 2, kParts = 3;
  Lane* lane;
  int part;
  std::int64_t first, count;  // units
};

struct SliceLanes::Lane {
  Lane(Context& context, StreamPriority priority)
      : graphs(context), stream(context, priority), done(context) {}

  bool is_copied(int part) const { return pieces_left[part].load(std::memory_order_acquire) == 0; }

  RowGraphs graphs;  // destroyed after the stream, which waits for their launches
  StreamLease stream;
  Event done;
  RowBuffers buffers;
  const Slice* pending = nullptr;  // is computed
  const Slice* next = nullptr;     // is copied, to be launched after:
  CUevent after = nullptr;
  const Lane* previous = nullptr;
  int sent = 0;                   // of its two parts, of which the first may be empty
  std::size_t part_ends[2] = {};  // bytes of the frames and the states behind them
  std::atomic<std::int64_t> pieces_left[Piece::kParts] = {};
};

SliceLanes::SliceLanes(Context& context, const PolicyDims& dims, const RowKernels& kernels,
                       const PolicyTuning& tuning, StreamPriority priority)
    : context_(context), dims_(dims), kernels_(kernels), tuning_(tuning) {
  for (int i = 0; i < tuning.lanes; ++i) lanes_.push_back(std::make_unique<Lane>(context, priority));
  if (kernels.values_ahead() > 0) ahead_.emplace(context, kernels, tuning, priority);
}

SliceLanes::~SliceLanes() = default;

void SliceLanes::reserve(std::int64_t slices, std::int64_t rows) {
  for (std::size_t i = 0; i < lanes_.size() && static_cast<std::int64_t>(i) < slices; ++i) {
    lanes_[i]->buffers.reserve(context_, dims_, capacity_for(rows));
  }
  if (ahead_ && slices > 1 && slices <= count()) ahead_->reserve(slices * rows);
}

void SliceLanes::reserve_sequences(std::int64_t slices, int least) {
  for (std::size_t i = 0; i < lanes_.size() && static_cast<std::int64_t>(i) < slices; ++i) {
    kernels_.reserve_sequences(lanes_[i]->stream.handle(), lanes_[i]->buffers, least);
  }
}

// As many slices as there are lanes are copied together, by all threads: a thread that is asleep wakes too
// late to help with one. The calling thread finds the states first, and launches each slice once it is
// copied. Of more slices each waits for the one whose lane it gets, and is copied while those between are
// computed.
bool SliceLanes::run(std::vector<Slice>& slices, bool chained, const StartEvent& start,
                     const SliceHooks& hooks, std::int64_t most) {
  finite_ = true;
  const auto lanes = static_cast<std::size_t>(std::min(most, count()));
  const std::size_t together = chained || slices.size() > lanes ? 1 : slices.size();
  CudaGroupMemory* kept = nullptr;
  CUevent after = nullptr;
  const auto find = [&] {
    BatchStates batch{nullptr};
    if (hooks.find) {
      batch = hooks.find();
      const policy::StatePlace* places = batch.places;
      for (Slice& slice : slices) slice.states = places, places += slice.job.rows;
    }
    after = start();
    for (std::size_t i = 0; hooks.before && i < together; ++i) hooks.before(slices[i]);
    if (!ahead_ || slices.size() > lanes) return;
    if (batch.group != nullptr && ahead_->takes(slices)) kept = batch.group;
    if (kept != nullptr && batch.known) {
      after = ahead_->begin_known(slices, *kept, lanes_[0]->stream.handle(), after);
    } else if (together > 1) {
      after = ahead_->begin(slices, after);
    }
  };
  try {
    Lane* previous = nullptr;
    std::vector<Piece> pieces;
    for (std::size_t first = 0; first < slices.size(); first += together) {
      pieces.clear();
      for (std::size_t i = first; i < first + together; ++i) {
        Lane& lane = *lanes_[i % lanes];
        lane.previous = chained && previous != &lane ? previous : nullptr;
        begin(lane, slices[i], i == 0, &pieces);
        previous = &lane;
      }
      copy(pieces, [&] {
        if (first == 0) {
          find();
        } else if (hooks.before) {
          hooks.before(slices[first]);
        }
        for (std::size_t i = first; i < first + together; ++i) set_table(*lanes_[i % lanes], after);
      });
    }
    if (kept != nullptr) {
      std::vector<CUevent> launched;
      for (std::size_t i = 0; i < slices.size(); ++i) launched.push_back(lanes_[i]->done.handle());
      ahead_->begin_next(slices, *kept, lanes_[0]->stream.handle(), launched);
    }
    if (hooks.is_right && !hooks.is_right()) return drop(), false;
    if (hooks.meanwhile) hooks.meanwhile();
    for (std::size_t i = 0; i < lanes; ++i) finish(*lanes_[(slices.size() + i) % lanes]);
    if (ahead_) ahead_->end();
    return finite_;
  } catch (...) {
    drop();
    throw;
  }
}

void SliceLanes::drop() noexcept {
  context_.armed().cancel();
  for (auto& lane : lanes_) {
    context_.note(driver().cuStreamSynchronize(lane->stream.handle()), "cuStreamSynchronize");
    lane->pending = lane->next = nullptr;
  }
  if (ahead_) ahead_->drop();
}

// Adds what has to be copied before the slice is launched: the lane's answers before, and its own frames.
void SliceLanes::begin(Lane& lane, const Slice& slice, bool is_first, std::vector<Piece>* pieces) {
  const RowJob& job = slice.job;
  const std::int64_t capacity = capacity_for(job.rows);
  if (capacity > lane.buffers.capacity) finish(lane);  // whose answers are in the memory that is replaced
  lane.buffers.reserve(context_, dims_, capacity);
  wait(lane);
  lane.next = &slice, lane.sent = 0;
  add_answers(lane, pieces);
  const std::int64_t length = length_of(slice), units = sent_rows(slice) / length,
                     unit_bytes = length * row_bytes();
  const bool two = is_first && units * unit_bytes >= kSentWhole && units * unit_bytes <= kSentInTwo;
  const std::int64_t early = two ? units * 3 / 4 : 0;
  lane.part_ends[0] = static_cast<std::size_t>(early * unit_bytes);
  lane.part_ends[1] =
      static_cast<std::size_t>(units * unit_bytes + (is_table_apart(slice) ? 0 : table_bytes(slice)));
  add_pieces(lane, 0, {0, early}, unit_bytes, pieces);
  add_pieces(lane, 1, {early, units}, unit_bytes, pieces);
  lane.pieces_left[1].fetch_add(1, std::memory_order_relaxed);  // the table
}

// Behind its frames. After this it may be launched.
void SliceLanes::set_table(Lane& lane, CUevent after) {
  const Slice& slice = *lane.next;
  const auto bytes = static_cast<std::size_t>(table_bytes(slice));
  if (bytes > 0) {
    const void* const from = slice.rings != nullptr ? static_cast<const void*>(slice.rings) : slice.states;
    stream_copy(lane.buffers.host_in.as<char>() + table_at(lane, slice), from, bytes);
    stream_fence();
  }
  lane.after = after;
  lane.pieces_left[1].fetch_sub(1, std::memory_order_acq_rel);
}

void SliceLanes::add_pieces(Lane& lane, int part, std::pair<std::int64_t, std::int64_t> units,
                            std::int64_t unit_bytes, std::vector<Piece>* pieces) {
  const std::int64_t each = std::max<std::int64_t>(1, kCopiedAtOnce / unit_bytes);
  std::int64_t count = 0;
  for (std::int64_t at = units.first; at < units.second; at += each, ++count) {
    pieces->push_back({&lane, part, at, std::min(each, units.second - at)});
  }
  lane.pieces_left[part] = count;
}

void SliceLanes::add_answers(Lane& lane, std::vector<Piece>* pieces) {
  std::int64_t rows = 0;
  if (lane.pending != nullptr && lane.pending->out != nullptr && lane.pending->pinned_out == 0) {
    const RowJob& job = lane.pending->job;
    rows = job.last_only ? job.sequences : job.rows;
  }
  add_pieces(lane, Piece::kAnswers, {0, rows}, 4 * dims_.outputs(), pieces);
}

template <class Prepare>
void SliceLanes::copy(const std::vector<Piece>& pieces, Prepare prepare) {
  std::int64_t frames = 0, answers = 0;
  for (const Piece& piece : pieces) {
    if (piece.part == Piece::kAnswers) {
      answers += 4 * piece.count * dims_.outputs();
    } else {
      frames += piece.count * row_bytes() * length_of(*piece.lane->next);
    }
  }
  const bool alone = frames < kFramesAlone && answers < kAnswersAlone;
  const auto count = static_cast<std::int64_t>(pieces.size());
  const std::thread::id caller = std::this_thread::get_id();
  bool prepared = false;
  const auto send_all = [&] {
    if (!prepared) prepared = true, prepare();
    for (auto& lane : lanes_) send(*lane);
  };
  core::parallel_for(count, alone ? count : 1, [&](std::int64_t begin, std::int64_t end) {
    const bool is_caller = std::this_thread::get_id() == caller;
    if (is_caller) send_all();
    for (std::int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<std::size_t>(i)];
      if (piece.part == Piece::kAnswers) {
        copy_answers(piece);
      } else {
        copy_frames(piece);
      }
      piece.lane->pieces_left[piece.part].fetch_sub(1, std::memory_order_acq_rel);
      if (is_caller) send_all();
    }
  });
  send_all();
}

// Sends the parts of the lane's next slice that are copied, where it has one, and after both launches it.
void SliceLanes::send(Lane& lane) {
  if (lane.next == nullptr) return;
  while (lane.sent < 2 && lane.is_copied(lane.sent)) {
    const std::size_t from = lane.sent == 0 ? 0 : lane.part_ends[0];
    upload(lane, from, lane.part_ends[lane.sent] - from);
    ++lane.sent;
    if (lane.sent < 2 || !is_table_apart(*lane.next)) continue;
    upload(lane, static_cast<std::size_t>(table_at(lane, *lane.next)),
           static_cast<std::size_t>(table_bytes(*lane.next)));
  }
  if (lane.sent == 2 && lane.is_copied(Piece::kAnswers)) launch(lane);
}

void SliceLanes::upload(Lane& lane, std::size_t from, std::size_t bytes) {
  if (bytes == 0) return;
  context_.check(
      driver().cuMemcpyHtoDAsync(lane.buffers.in.address() + from, lane.buffers.host_in.as<char>() + from,
                                 bytes, lane.stream.handle()),
      "cuMemcpyHtoDAsync");
}

std::int64_t SliceLanes::row_bytes() const {
  return 4 * std::int64_t{dims_.frame_size()};
}
std::int64_t SliceLanes::length_of(const Slice& slice) {
  return slice.windows != nullptr ? slice.job.seq : 1;
}
std::int64_t SliceLanes::sent_rows(const Slice& slice) {
  return slice.rings != nullptr ? slice.job.kept->fresh : slice.job.rows;
}
std::int64_t SliceLanes::table_bytes(const Slice& slice) {
  const std::int64_t sequences = slice.job.sequences;
  if (slice.rings != nullptr) return sequences * static_cast<std::int64_t>(sizeof(policy::KeptRing));
  const std::int64_t states = slice.job.batch ? slice.job.rows : slice.states == nullptr ? 0 : sequences;
  return states * static_cast<std::int64_t>(sizeof(policy::StatePlace));
}
bool SliceLanes::is_table_apart(const Slice& slice) const {
  return slice.rings != nullptr && dims_.network().hidden == dims_.network().frame;
}
std::int64_t SliceLanes::table_at(const Lane& lane, const Slice& slice) const {
  return (is_table_apart(slice) ? lane.buffers.capacity : sent_rows(slice)) * row_bytes();
}

void SliceLanes::copy_frames(const Piece& piece) {
  const Slice& slice = *piece.lane->next;
  const std::int64_t length = length_of(slice), unit_bytes = length * row_bytes(),
                     end = piece.first + piece.count;
  char* const staged = piece.lane->buffers.host_in.as<char>();
  bool finite = true;
  if (slice.windows == nullptr) {
    finite = stream_frames(dims_, slice, piece.first, piece.count, staged + piece.first * unit_bytes);
  }
  for (std::int64_t i = piece.first; slice.windows != nullptr && i < end; ++i) {
    finite &=
        dims_.stream_frames(slice.windows[i], length, reinterpret_cast<float*>(staged + i * unit_bytes));
  }
  if (!finite) finite_ = false;
  stream_fence();
}

void SliceLanes::copy_answers(const Piece& piece) {
  const RowBuffers& buffers = piece.lane->buffers;
  hand_out_answers(dims_, *piece.lane->pending, buffers.host_out.as<float>(), piece.first, piece.count);
}

// Once all of the next slice is on its way.
void SliceLanes::launch(Lane& lane) {
  const Slice& slice = *lane.next;
  const CUstream stream = lane.stream.handle();
  context_.check(driver().cuStreamWaitEvent(stream, lane.after, 0), "cuStreamWaitEvent");
  if (lane.previous != nullptr) {
    context_.check(driver().cuStreamWaitEvent(stream, lane.previous->done.handle(), 0), "cuStreamWaitEvent");
  }
  RowJob job = slice.job;
  job.keep_states = slice.states != nullptr;
  if (job.kept) {
    job.kept->rings = as_pointer<policy::KeptRing>(lane.buffers.in.address() +
                                                   static_cast<std::size_t>(table_at(lane, slice)));
  }
  if (ahead_) job.ahead = ahead_->of(slice);
  const std::int64_t out_rows = job.last_only ? job.sequences : job.rows;
  const auto bytes = static_cast<std::size_t>(out_rows * dims_.outputs()) * 4;
  // A graph's kernels write where they wrote before.
  const bool itself = slice.pinned_out != 0, direct = bytes <= kMostDirectOutput && !(itself && slice.graphs);
  const CUdeviceptr host_out = itself ? slice.pinned_out : lane.buffers.host_out.device_address();
  job.out = direct ? as_pointer<float>(host_out) : lane.buffers.out.as<float>();
  if (slice.graphs) {
    lane.graphs.enqueue(kernels_, stream, lane.buffers, job);
  } else {
    kernels_.enqueue(stream, lane.buffers, job);
  }
  if (!direct && slice.out != nullptr) {
    void* const to = itself ? slice.out : lane.buffers.host_out.data();
    context_.check(driver().cuMemcpyDtoHAsync(to, lane.buffers.out.address(), bytes, stream),
                   "cuMemcpyDtoHAsync");
  }
  lane.done.record(stream);
  lane.pending = &slice, lane.next = nullptr;
}

void SliceLanes::wait(Lane& lane) {
  if (lane.pending == nullptr) return;
  await_event(lane.done, tuning_.spin_microseconds);
}

// Waits for the lane's slice and copies out its outputs.
void SliceLanes::finish(Lane& lane) {
  wait(lane);
  std::vector<Piece> pieces;
  add_answers(lane, &pieces);
  copy(pieces, [] {});
  lane.pending = nullptr;
}

}  // namespace exphil::cuda
