// The frames that a session with a window keeps (core/session/frame_window.hpp), against a plain list.
#include "core/session/frame_window.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "support/catch.hpp"
#include "support/numbers.hpp"

namespace exphil::core {
namespace {

constexpr std::int64_t kWidth = 3;

// Every frame that was pushed, and those that the ring holds: by the number of the frame, which a slot loses
// when a later frame gets it.
class PushedFrames {
 public:
  PushedFrames(std::int64_t frames, std::int64_t history)
      : frames_(frames), history_(history), window_(kWidth, frames, Pad::none, history) {}

  void push() {
    const float value = static_cast<float>(next_++);
    const std::vector<float> frame{value, -value, value / 2};
    const auto number = static_cast<std::int64_t>(pushed_.size());
    pushed_.push_back(frame);
    held_.erase(number), held_.erase(number - window_.capacity());
    undone_ = std::max<std::int64_t>(0, undone_ - 1);
    window_.push(frame.data());
  }
  void undo(std::int64_t pushes) {
    pushes = std::min({pushes, history_ + 1 - undone_, static_cast<std::int64_t>(pushed_.size())});
    window_.undo(pushes);
    pushed_.resize(pushed_.size() - static_cast<std::size_t>(pushes));
    undone_ += pushes;
  }
  void hold() {
    if (pushed_.empty()) return;
    const RingWindows windows = window_.ring_windows(1);
    window_.set_held(windows);
    const auto end = static_cast<std::int64_t>(pushed_.size());
    for (std::int64_t i = end - windows.fresh; i < end; ++i) held_.insert(i);
  }
  void forget() { window_.forget_held(), held_.clear(); }

  void check() {
    if (pushed_.empty()) return;
    check_ring();
    const auto length = std::min(frames_, static_cast<std::int64_t>(pushed_.size()));
    REQUIRE(window_.length() == length);
    for (std::int64_t i = 0; i < length; ++i) {
      const float* const found = window_.data() + i * kWidth;
      const std::vector<float>& frame = pushed_[pushed_.size() - static_cast<std::size_t>(length - i)];
      REQUIRE(std::equal(frame.begin(), frame.end(), found));
    }
  }

 private:
  // Fresh are the first frame that is not held, and those after it.
  void check_ring() const {
    const auto end = static_cast<std::int64_t>(pushed_.size()), seq = std::min(frames_, end);
    std::int64_t fresh = seq;
    while (fresh > 0 && held_.count(end - fresh) > 0) --fresh;
    const RingWindows windows = window_.ring_windows(1);
    REQUIRE(windows.seq == seq);
    REQUIRE(windows.fresh == fresh);
    REQUIRE(windows.first == (end - seq) % window_.capacity());
    for (std::int64_t i = 0; i < fresh; ++i) {
      const std::vector<float>& frame = pushed_[static_cast<std::size_t>(end - fresh + i)];
      REQUIRE(std::equal(frame.begin(), frame.end(), windows.obs + i * kWidth));
    }
  }

  const std::int64_t frames_, history_;
  FrameWindow window_;
  std::vector<std::vector<float>> pushed_;
  std::set<std::int64_t> held_;
  std::int64_t undone_ = 0, next_ = 1;
};

// Windows whose held frames are in one word and in several.
TEST_CASE("a window's frames are those that were pushed last", "[core][session][window]") {
  test::Random random(11);
  for (const std::int64_t frames : {1, 2, 7, 60, 64, 130}) {
    for (const std::int64_t history : {0, 5, 62}) {
      CAPTURE(frames, history);
      PushedFrames model(frames, history);
      for (int i = 0; i < 600; ++i) {
        const auto dice = random.bits() % 100;
        if (dice < 85) {
          model.push();
        } else if (dice < 92) {
          model.undo(1 + static_cast<std::int64_t>(random.bits() % static_cast<std::uint64_t>(history + 1)));
        } else if (dice < 93) {
          model.forget();
        }
        model.check();
        if (random.bits() % 10 < 8) model.hold();
      }
    }
  }
}

}  // namespace
}  // namespace exphil::core
