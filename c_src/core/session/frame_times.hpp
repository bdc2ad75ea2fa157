// Predicts when the next frame of a fixed rate comes. Frames are on time or late, rarely early; so the
// prediction follows an early frame at once, a late one slowly, and a lasting delay after three frames. Used
// by pace.cpp; plain data of one thread.
#pragma once

#include <chrono>

namespace exphil::core {

class FrameTimes {
 public:
  using Clock = std::chrono::steady_clock;
  explicit FrameTimes(std::chrono::nanoseconds period) : period_(period) {}

  // After the first frame: when the next one is due. Clock::time_point::max() before it.
  Clock::time_point next() const { return next_; }
  // Frames later than this are not followed at once.
  std::chrono::nanoseconds tolerance() const { return period_ / 8; }

  void arrived(Clock::time_point at) {
    std::chrono::nanoseconds error{0};
    if (next_ != Clock::time_point::max()) {
      const auto passed = at - next_ + period_ / 2;
      const auto periods = passed >= passed.zero() ? passed / period_ : -((-passed) / period_ + 1);
      const Clock::time_point due = next_ + periods * period_;
      error = at - due;
      late_ = error > tolerance() ? late_ + 1 : 0;
      const bool follow = error < error.zero() || late_ >= 3;
      at = follow ? at : late_ > 0 ? due : due + error / 8;
      if (follow) late_ = 0;
    }
    next_ = at + period_;
  }
  // The expected frame did not come.
  void missed() { next_ += period_; }
  void forget() { next_ = Clock::time_point::max(), late_ = 0; }

 private:
  const std::chrono::nanoseconds period_;
  Clock::time_point next_ = Clock::time_point::max();
  int late_ = 0;
};

}  // namespace exphil::core
