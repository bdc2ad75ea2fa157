#include "core/session/frame_window.hpp"

#include <algorithm>
#include <atomic>

#include "core/tensor.hpp"

namespace exphil::core {
namespace {

constexpr std::int64_t kWordBits = 64;

}  // namespace

FrameWindow::FrameWindow(std::int64_t d_input, std::int64_t frames, Pad pad, std::int64_t history)
    : d_input_(d_input),
      frames_(frames),
      pad_(pad),
      capacity_(frames + history + 1),
      rows_(static_cast<std::size_t>(
          checked_multiply(checked_multiply(d_input, 2, ":window"), capacity_, ":window"))),
      held_(static_cast<std::size_t>(capacity_ / kWordBits + 1)) {}

std::uint64_t FrameWindow::new_stamp() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void FrameWindow::write(std::int64_t row, const float* obs) {
  std::copy_n(obs, d_input_, rows_.begin() + row * d_input_);
  std::copy_n(obs, d_input_, rows_.begin() + (row + capacity_) * d_input_);
}

void FrameWindow::set_held(std::int64_t row, bool held) {
  const std::uint64_t bit = std::uint64_t{1} << row % kWordBits;
  std::uint64_t& word = held_[static_cast<std::size_t>(row / kWordBits)];
  word = held ? word | bit : word & ~bit;
}

std::int64_t FrameWindow::held_from(std::int64_t row, std::int64_t most) const {
  std::int64_t held = 0;
  while (held < most) {
    const std::int64_t at = (row + held) % capacity_, bit = at % kWordBits;
    const std::int64_t of_word = std::min({most - held, capacity_ - at, kWordBits - bit});
    const std::uint64_t missing = ~held_[static_cast<std::size_t>(at / kWordBits)] >> bit;
    const std::int64_t ones = missing == 0 ? kWordBits : __builtin_ctzll(missing);
    if (ones < of_word) return held + ones;
    held += of_word;
  }
  return most;
}

void FrameWindow::push(const float* obs) {
  if (count_ == 0 && pad_ == Pad::repeat) {
    for (std::int64_t i = 0; i < capacity_; ++i) write(i, obs);
    forget_held();
  } else {
    write(row_of(count_), obs);
    set_held(row_of(count_), false);
  }
  ++count_;
  stamp_ = new_stamp();
}

// The rows of the frames that are undone keep their values until the next push overwrites them. Each of them
// replaced a row that is capacity_ frames older, which no window within history needs. After undoing a first
// frame there is nothing to restore under Pad::repeat: the next first frame writes every row.
void FrameWindow::undo(std::int64_t pushes) {
  count_ -= pushes;
  stamp_ = new_stamp();
}

void FrameWindow::assign(const FrameWindow& other) {
  std::fill(rows_.begin(), rows_.end(), 0.0f);
  forget_held();
  count_ = 0;
  stamp_ = new_stamp();
  for (std::int64_t i = other.count_ - other.kept(); i < other.count_; ++i) push(other.frame(i));
}

std::int64_t FrameWindow::length() const {
  return pad_ == Pad::none ? kept() : frames_;
}

const float* FrameWindow::data() const {
  return frame(count_ - length());
}

FrameWindow::Frames FrameWindow::before_next() const {
  if (count_ == 0) return {nullptr, 0};
  const std::int64_t all = length(), left = grows() ? 0 : 1;
  return {data() + left * d_input_, all - left};
}

RingWindows FrameWindow::ring_windows(std::int64_t count) const {
  RingWindows windows;
  windows.seq = length();
  windows.count = count;
  const std::int64_t all = windows.seq + count - 1, begin = count_ - all;
  windows.first = row_of(begin);
  // Frames before the first one that is missing are held; those after it are computed again with it.
  const std::int64_t held = held_from(windows.first, all);
  windows.fresh = all - held;
  windows.obs = frame(begin + held);
  return windows;
}

void FrameWindow::set_held(const RingWindows& windows) {
  const std::int64_t all = windows.seq + windows.count - 1;
  for (std::int64_t i = all - windows.fresh; i < all; ++i) {
    set_held((windows.first + i) % capacity_, true);
  }
}

std::vector<float> FrameWindow::kept_frames() const {
  const float* const first = frame(count_ - kept());
  return {first, first + kept() * d_input_};
}

}  // namespace exphil::core
