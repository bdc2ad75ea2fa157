// The last frames of one agent, for a session with a window: those of the window, and `history` more, so that
// as many pushes can be undone. Oldest first and always contiguous: each frame is written twice, half the
// buffer apart. It also knows which of them the policy's ring (core/policy/policy.hpp) holds: frame t of both
// is in slot t modulo capacity(). Used by session.cpp, saved_states.cpp and rollback.cpp, under the session's
// lock.
#pragma once

#include <cstdint>
#include <vector>

#include "core/policy/policy.hpp"

namespace exphil::core {

// What precedes the first frame: copies of it (as ExPhil plays), zeros, or nothing (shorter windows).
enum class Pad { repeat, zeros, none };

class FrameWindow {
 public:
  FrameWindow(std::int64_t d_input, std::int64_t frames, Pad pad, std::int64_t history);

  std::int64_t frames() const { return frames_; }
  Pad pad() const { return pad_; }

  void push(const float* obs);
  // Undoes the last `pushes`: at most those since assign, and at most history + 1 in a row.
  void undo(std::int64_t pushes);
  // The frames of `other`, which has the same width, number of frames and padding. Allocates nothing.
  void assign(const FrameWindow& other);

  // The window that ends at the last frame, after at least one push: {length(), d_input}.
  std::int64_t length() const;
  const float* data() const;
  // The frames of the next window but for its last one, which is not there yet.
  struct Frames {
    const float* first;
    std::int64_t count;
  };
  Frames before_next() const;
  // Two objects that have the same one have the same frames.
  std::uint64_t stamp() const { return stamp_; }
  bool grows() const { return pad_ == Pad::none && count_ < frames_; }  // the next push makes it longer

  std::int64_t capacity() const { return capacity_; }
  std::int64_t floats() const { return 2 * d_input_ * capacity_; }  // of all frames, as they are kept
  // The `count` windows that end at the last `count` frames, all of length(), for FrameRing::answer. count
  // is at most history + 1. obs points into this object.
  RingWindows ring_windows(std::int64_t count) const;
  // After it has returned: the ring holds the frames of these windows.
  void set_held(const RingWindows& windows);
  // The ring may hold other frames.
  void forget_held() { held_.assign(held_.size(), 0); }

  // The frames pushed so far, at most frames(), oldest first. Pushing them again rebuilds this object.
  std::int64_t kept() const { return count_ < frames_ ? count_ : frames_; }
  std::vector<float> kept_frames() const;

 private:
  static std::uint64_t new_stamp() noexcept;
  void write(std::int64_t row, const float* obs);
  void set_held(std::int64_t row, bool held);
  std::int64_t held_from(std::int64_t row, std::int64_t most) const;  // so many in a row
  // The row of frame `index`; a negative index is padding.
  std::int64_t row_of(std::int64_t index) const { return (index % capacity_ + capacity_) % capacity_; }
  const float* frame(std::int64_t index) const { return rows_.data() + row_of(index) * d_input_; }

  std::int64_t d_input_, frames_;
  Pad pad_;
  std::int64_t capacity_;   // frames and padding kept: frames + history + 1, for the frame that is undone
  std::int64_t count_ = 0;  // frames pushed
  std::uint64_t stamp_ = new_stamp();
  std::vector<float> rows_;
  std::vector<std::uint64_t> held_;  // a bit for each row: the ring's slot has its frame
};

}  // namespace exphil::core
