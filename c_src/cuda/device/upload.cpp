// The ring of pinned blocks.
#include "cuda/device/upload.hpp"

#include <algorithm>
#include <utility>

#include "core/work/background.hpp"
#include "core/work/parallel.hpp"
#include "cuda/device/shared_memory.hpp"
#include "cuda/device/stream_copy.hpp"

namespace exphil::cuda {
namespace {

// Measured on an H200 with 16 cores (bench/results/gpu_scan.md): smaller pieces cost more in calls than their
// overlap gains, larger ones leave threads without work.
constexpr std::size_t kPiece = std::size_t{1} << 20, kSmallPiece = kPiece / 2;
constexpr std::size_t kFewPieces = 4;        // of kPiece; a smaller image is copied in small pieces
constexpr std::size_t kMostRingBlocks = 48;  // 48 MB of pinned memory per call
// More threads wake up late and wait for each other: with eight, a call of 8 MB took 1.8 times as long.
constexpr std::int64_t kMostThreads = 4;

}  // namespace

Upload::Upload(Context& context, CUstream stream, CUdeviceptr image, std::vector<ImageSegment> segments,
               std::vector<std::size_t> ends, std::function<void(std::size_t)> on_ready,
               const core::DeviceRanges& on_device)
    : context_(context),
      stream_(stream),
      image_(image),
      segments_(std::move(segments)),
      ends_(std::move(ends)),
      on_ready_(std::move(on_ready)) {
  require_shared_memory(context_, on_device);
  for (ImageSegment& segment : segments_) segment.on_device = core::is_in(on_device, segment.data);
  piece_bytes_ = ends_.back() < kFewPieces * kPiece ? kSmallPiece : kPiece;
  pieces_ = (ends_.back() + piece_bytes_ - 1) / piece_bytes_;
  // Two blocks will do where other calls hold the pool.
  const std::size_t wanted = std::min(pieces_, kMostRingBlocks), least = std::min<std::size_t>(pieces_, 2);
  if (has_host_bytes(0, ends_.back()))
    ring_ = context_.pinned_pool().stage(least * piece_bytes_, wanted * piece_bytes_);
  blocks_ = ring_.bytes() / piece_bytes_;
  filled_.resize(pieces_);
  if (blocks_ > 0 && pieces_ > blocks_) {
    for (std::size_t i = 0; i < blocks_; ++i) copied_.push_back(std::make_unique<Event>(context_));
  }
}

void Upload::run() {
  // No host memory to copy: this thread queues everything, and reports the slices that need no bytes.
  if (blocks_ == 0) {
    const ContextGuard guard(context_);
    for (; queued_ < pieces_; ++queued_) queue_next();
    for (; ready_ < ends_.size(); ++ready_) on_ready_(ready_);
    return;
  }
  const std::int64_t threads =
      std::min<std::int64_t>({kMostThreads, core::threads(), static_cast<std::int64_t>(pieces_)});
  core::parallel_for(threads, 1, [this](std::int64_t, std::int64_t) { work(); });
}

void Upload::work() {
  const ContextGuard guard(context_);
  for (;;) {
    std::size_t piece;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (failed_ || next_ == pieces_) return;
      piece = next_++;
    }
    try {
      wait_for_block(piece);
      fill(piece);
      finish(piece);
      core::give_way();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      failed_ = true;
      queued_changed_.notify_all();
      throw;
    }
  }
}

// Waits until the ring block of `piece` is free: the piece `blocks_` before it used it last, and another
// thread may still be filling it.
void Upload::wait_for_block(std::size_t piece) {
  if (piece < blocks_) return;
  std::unique_lock<std::mutex> lock(mutex_);
  queued_changed_.wait(lock, [&] { return failed_ || queued_ > piece - blocks_; });
  if (failed_) return;
  lock.unlock();
  copied_[piece % blocks_]->synchronize();
}

void Upload::fill(std::size_t piece) {
  const std::size_t begin = piece * piece_bytes_, end = std::min(begin + piece_bytes_, ends_.back());
  char* block = ring_.as<char>() + piece % blocks_ * piece_bytes_;
  each_segment(begin, end, false, [&](const ImageSegment& segment, std::size_t from, std::size_t to) {
    stream_copy(block + (from - begin), static_cast<const char*>(segment.data) + (from - segment.at),
                to - from);
  });
}

template <class Copy>
void Upload::each_segment(std::size_t begin, std::size_t end, bool on_device, const Copy& copy) const {
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), begin,
                                  [](std::size_t at, const ImageSegment& s) { return at < s.at + s.bytes; });
  for (; segment != segments_.end() && segment->at < end; ++segment) {
    const std::size_t from = std::max(begin, segment->at), to = std::min(end, segment->at + segment->bytes);
    if (from < to && segment->on_device == on_device) copy(*segment, from, to);
  }
}

bool Upload::has_host_bytes(std::size_t begin, std::size_t end) const {
  bool found = false;
  each_segment(begin, end, false, [&](const ImageSegment&, std::size_t, std::size_t) { found = true; });
  return found;
}

void Upload::copy_on_device(std::size_t begin, std::size_t end) {
  each_segment(begin, end, true, [&](const ImageSegment& segment, std::size_t from, std::size_t to) {
    context_.check(driver().cuMemcpyDtoDAsync(
                       image_ + from, reinterpret_cast<CUdeviceptr>(segment.data) + (from - segment.at),
                       to - from, stream_),
                   "cuMemcpyDtoDAsync");
  });
}

// One thread at a time queues the copies of the filled pieces in order, and reports the slices they complete.
// It holds no lock while it calls the driver, so that the others continue filling: a call of 34 MB takes 1.3
// ms instead of 1.9 (8x1024x512x16 on an H200).
void Upload::finish(std::size_t piece) {
  std::unique_lock<std::mutex> lock(mutex_);
  filled_[piece] = true;
  if (queueing_) return;
  queueing_ = true;
  while (queued_ < pieces_ && filled_[queued_] && !failed_) {
    lock.unlock();
    queue_next();
    lock.lock();
    ++queued_;
    queued_changed_.notify_all();
  }
  queueing_ = false;
}

void Upload::queue_next() {
  const std::size_t begin = queued_ * piece_bytes_, end = std::min(begin + piece_bytes_, ends_.back());
  const std::size_t block = blocks_ > 0 ? queued_ % blocks_ : 0;
  if (has_host_bytes(begin, end)) {
    context_.check(driver().cuMemcpyHtoDAsync(image_ + begin, ring_.as<char>() + block * piece_bytes_,
                                              end - begin, stream_),
                   "cuMemcpyHtoDAsync");
  }
  // After the copy of the piece, which has other bytes in their place.
  copy_on_device(begin, end);
  if (!copied_.empty()) copied_[block]->record(stream_);
  while (ready_ < ends_.size() && ends_[ready_] <= end) on_ready_(ready_++);
}

void upload_now(Context& context, CUdeviceptr image, std::vector<ImageSegment> segments) {
  if (segments.empty()) return;
  const std::size_t end = segments.back().at + segments.back().bytes;
  std::unique_ptr<Upload> upload;
  StreamLease stream(context);  // idle before the upload's memory goes back
  upload = std::make_unique<Upload>(context, stream.handle(), image, std::move(segments),
                                    std::vector<std::size_t>{end}, [](std::size_t) {});
  upload->run();
  stream.synchronize();
}

}  // namespace exphil::cuda
