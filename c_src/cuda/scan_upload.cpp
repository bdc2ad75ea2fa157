// The ring of pinned blocks; see scan_upload.hpp.
#include "cuda/scan_upload.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/parallel.hpp"

namespace exphil::cuda {
namespace {

// Measured on an H200 with 16 cores (bench/results/gpu_scan.md): smaller pieces cost more calls than their
// overlap gains.
constexpr std::size_t kPiece = std::size_t{512} << 10;
constexpr std::size_t kMostBlocks = 48;  // 24 MB of pinned memory a call
// More threads wake up late and wait for each other: with eight a call of 8 MB took 1.8 times as long.
constexpr std::int64_t kMostThreads = 4;

}  // namespace

ScanUpload::ScanUpload(Context& context, CUstream stream, CUdeviceptr image,
                       std::vector<ImageSegment> segments, std::vector<std::size_t> ends,
                       std::function<void(std::size_t)> on_ready)
    : context_(context),
      stream_(stream),
      image_(image),
      segments_(std::move(segments)),
      ends_(std::move(ends)),
      on_ready_(std::move(on_ready)) {
  pieces_ = (ends_.back() + kPiece - 1) / kPiece;
  blocks_ = std::min(pieces_, kMostBlocks);
  // The call can do with less where other calls hold the pool.
  while (blocks_ > 2 && !(ring_ = context_.pinned_pool().try_allocate(blocks_ * kPiece))) blocks_ /= 2;
  if (blocks_ > 0 && !ring_) ring_ = context_.pinned_pool().allocate(blocks_ * kPiece);
  filled_.resize(pieces_);
  if (pieces_ > blocks_) {
    for (std::size_t i = 0; i < blocks_; ++i) copied_.push_back(std::make_unique<Event>(context_));
  }
}

void ScanUpload::run() {
  // Reports the slices that need no bytes at all.
  if (pieces_ == 0) {
    const ContextGuard guard(context_);
    for (; ready_ < ends_.size(); ++ready_) on_ready_(ready_);
    return;
  }
  const std::int64_t threads =
      std::min<std::int64_t>({kMostThreads, core::threads(), static_cast<std::int64_t>(pieces_)});
  core::parallel_for(threads, 1, [this](std::int64_t, std::int64_t) { work(); });
}

void ScanUpload::work() {
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
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      failed_ = true;
      queued_changed_.notify_all();
      throw;
    }
  }
}

// The ring block of `piece` was last used by a piece `blocks_` before it, which another thread may still be
// filling.
void ScanUpload::wait_for_block(std::size_t piece) {
  if (piece < blocks_) return;
  std::unique_lock<std::mutex> lock(mutex_);
  queued_changed_.wait(lock, [&] { return failed_ || queued_ > piece - blocks_; });
  if (failed_) return;
  lock.unlock();
  copied_[piece % blocks_]->synchronize();
}

void ScanUpload::fill(std::size_t piece) {
  const std::size_t begin = piece * kPiece, end = std::min(begin + kPiece, ends_.back());
  char* block = ring_.as<char>() + piece % blocks_ * kPiece;
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), begin,
                                  [](std::size_t at, const ImageSegment& s) { return at < s.at + s.bytes; });
  for (; segment != segments_.end() && segment->at < end; ++segment) {
    const std::size_t from = std::max(begin, segment->at), to = std::min(end, segment->at + segment->bytes);
    if (from >= to) continue;
    std::memcpy(block + (from - begin), static_cast<const char*>(segment->data) + (from - segment->at),
                to - from);
  }
}

// Queues the copies of every filled piece whose predecessors are queued, and reports the slices they
// complete.
void ScanUpload::finish(std::size_t piece) {
  const std::lock_guard<std::mutex> lock(mutex_);
  filled_[piece] = true;
  while (queued_ < pieces_ && filled_[queued_] && !failed_) {
    const std::size_t begin = queued_ * kPiece, end = std::min(begin + kPiece, ends_.back());
    const std::size_t block = queued_ % blocks_;
    context_.check(
        driver().cuMemcpyHtoDAsync(image_ + begin, ring_.as<char>() + block * kPiece, end - begin, stream_),
        "cuMemcpyHtoDAsync");
    if (!copied_.empty()) copied_[block]->record(stream_);
    ++queued_;
    while (ready_ < ends_.size() && ends_[ready_] <= end) on_ready_(ready_++);
  }
  queued_changed_.notify_all();
}

}  // namespace exphil::cuda
