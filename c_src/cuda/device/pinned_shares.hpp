// How a pool of pinned memory divides its limit. Knows nothing of CUDA. Safe from any thread.
//
// A quarter is for staging: what one call copies through, from its start to its end. A call that finds too
// little waits for its turn; turns come in order, and each call that ends makes room, so that every call gets
// there. A call must not ask for more while it holds some: it would wait for itself. Results have the rest
// beside what is kept for as long as a model lives; without room they come back in ordinary memory.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace exphil::cuda {

enum class PinnedUse { kept, result, staging };

class PinnedShares {
 public:
  explicit PinnedShares(std::size_t limit) : staging_limit_(limit / 4), others_limit_(limit - limit / 4) {}

  // Counts between `least` and `wanted` bytes as staging and returns how many, once they fit or nobody else
  // has any.
  std::size_t enter_staging(std::size_t least, std::size_t wanted) {
    std::unique_lock<std::mutex> lock(mutex_);
    const std::uint64_t turn = next_turn_++;
    changed_.wait(
        lock, [&] { return turn == serving_ && (staging_ == 0 || least <= room(staging_limit_, staging_)); });
    // Halves, so that blocks have few sizes and are used again: a new block costs milliseconds.
    std::size_t granted = wanted;
    while (granted > least && granted > room(staging_limit_, staging_))
      granted = std::max(least, granted / 2);
    staging_ += granted;
    ++serving_;
    changed_.notify_all();
    return granted;
  }

  // The same with `least` alone, after the system refused as much to a call that read given_back() as `seen`
  // before it asked: first another call has to give some back. Nothing where none does and none holds any.
  std::optional<std::size_t> enter_staging_after_another(std::size_t least, std::uint64_t seen) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return staging_ == 0 || given_back_ != seen; });
      if (given_back_ == seen) return std::nullopt;
    }
    return enter_staging(least, least);
  }

  // Staging buffers that were given back so far.
  std::uint64_t given_back() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return given_back_;
  }

  // Without waiting: false where staging is short, or another call waits for it.
  bool try_staging(std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (next_turn_ != serving_ || bytes > room(staging_limit_, staging_)) return false;
    staging_ += bytes;
    return true;
  }

  bool try_result(std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > room(others_limit_, others_)) return false;
    others_ += bytes;
    return true;
  }

  void keep(std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    others_ += bytes;
  }

  // The bytes were counted, and the system refused them.
  void withdraw(PinnedUse use, std::size_t bytes) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    (use == PinnedUse::staging ? staging_ : others_) -= bytes;
    changed_.notify_all();
  }

  void leave(PinnedUse use, std::size_t bytes) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    (use == PinnedUse::staging ? staging_ : others_) -= bytes;
    if (use == PinnedUse::staging) ++given_back_;
    changed_.notify_all();
  }

  // Calls that wait for their turn.
  std::uint64_t waiting() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return next_turn_ - serving_;
  }

 private:
  static std::size_t room(std::size_t limit, std::size_t used) { return limit > used ? limit - used : 0; }

  const std::size_t staging_limit_, others_limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t staging_ = 0, others_ = 0;       // bytes in use
  std::uint64_t next_turn_ = 0, serving_ = 0;  // turns given out, and the one that is next
  std::uint64_t given_back_ = 0;               // staging buffers so far
};

}  // namespace exphil::cuda
