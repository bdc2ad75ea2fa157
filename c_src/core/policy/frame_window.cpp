#include "core/policy/frame_window.hpp"

#include <algorithm>

#include "core/tensor.hpp"

namespace exphil::core {

FrameWindow::FrameWindow(std::int64_t d_input, std::int64_t frames, Pad pad)
    : d_input_(d_input),
      frames_(frames),
      pad_(pad),
      rows_(static_cast<std::size_t>(
          checked_multiply(checked_multiply(d_input, 2, ":window"), frames, ":window"))),
      overwritten_(static_cast<std::size_t>(d_input)) {}

void FrameWindow::write(std::int64_t row, const float* obs) {
  std::copy_n(obs, d_input_, rows_.begin() + row * d_input_);
  std::copy_n(obs, d_input_, rows_.begin() + (row + frames_) * d_input_);
}

void FrameWindow::push(const float* obs) {
  const std::int64_t row = count_ % frames_;
  std::copy_n(rows_.begin() + row * d_input_, d_input_, overwritten_.begin());
  if (count_ == 0 && pad_ == Pad::repeat) {
    for (std::int64_t i = 0; i < frames_; ++i) write(i, obs);
  } else {
    write(row, obs);
  }
  ++count_;
}

// After undoing a first frame there is nothing to restore: the next first frame writes every row.
void FrameWindow::undo() {
  --count_;
  if (count_ > 0 || pad_ != Pad::repeat) write(count_ % frames_, overwritten_.data());
}

std::int64_t FrameWindow::length() const {
  return pad_ == Pad::none ? kept() : frames_;
}

const float* FrameWindow::data() const {
  const bool from_start = pad_ == Pad::none && count_ < frames_;
  return rows_.data() + (from_start ? 0 : count_ % frames_ * d_input_);
}

std::vector<float> FrameWindow::kept_frames() const {
  const std::int64_t first = count_ < frames_ ? 0 : count_ % frames_;
  const auto begin = rows_.begin() + first * d_input_;
  return {begin, begin + kept() * d_input_};
}

}  // namespace exphil::core
