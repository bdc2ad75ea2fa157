// The last frames of one agent, for a session with a window. Oldest first and always contiguous: each frame
// is written twice, half the buffer apart. Used by session.cpp, under its lock.
#pragma once

#include <cstdint>
#include <vector>

namespace exphil::core {

// What precedes the first frame: copies of it (as ExPhil plays), zeros, or nothing (shorter windows).
enum class Pad { repeat, zeros, none };

class FrameWindow {
 public:
  FrameWindow(std::int64_t d_input, std::int64_t frames, Pad pad);

  std::int64_t frames() const { return frames_; }
  Pad pad() const { return pad_; }

  void push(const float* obs);
  void undo();  // undoes the last push; at most once per push

  // The window that ends at the last frame, after at least one push: {length(), d_input}.
  std::int64_t length() const;
  const float* data() const;

  // The frames pushed so far, at most frames(), oldest first. Pushing them again rebuilds this object.
  std::int64_t kept() const { return count_ < frames_ ? count_ : frames_; }
  std::vector<float> kept_frames() const;

 private:
  void write(std::int64_t row, const float* obs);

  std::int64_t d_input_, frames_;
  Pad pad_;
  std::int64_t count_ = 0;  // frames pushed
  std::vector<float> rows_, overwritten_;
};

}  // namespace exphil::core
