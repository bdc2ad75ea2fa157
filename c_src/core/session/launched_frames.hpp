// The frames of one launch, from when they are taken until each is answered. Used by gatherer_launches.cpp:
// one thread fills it and launches, then several answer. Its memory is used again. Launches that are under
// way at the same time have an object each.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "core/session/gathered_frame.hpp"

namespace exphil::core {

class LaunchedFrames {
 public:
  // With room for so many frames: nothing here allocates but `obs` and `out`, and answer() where it passes
  // on.
  explicit LaunchedFrames(std::size_t most) {
    frames.reserve(most), order_.reserve(most), ends_.reserve(most);
  }

  // Of another launch, without frames yet. It is in use from here on.
  void begin() noexcept {
    frames.clear();
    unanswered_.store(1, std::memory_order_relaxed);  // until cut_answers() knows how many
  }

  std::vector<GatheredFramePtr> frames;
  std::vector<float> obs;  // {frames, d_input}
  std::size_t d_output = 0;
  std::vector<float> out;    // {frames, d_output}
  std::exception_ptr error;  // of the launch
  GatheredLaunch told;
  float microseconds = 0;

  // Answers that one thread delivers: at least so many, where there are, so that few frames wake few threads;
  // and at most so many of one lane, because the last waits for all others, and a scheduler that delivers
  // them does nothing else.
  static constexpr std::size_t kLeastAnswers = 8, kMostAnswers = 32;
  // Cuts the answers into parts, by the lanes of the frames. The launch is in use until each is delivered.
  void cut_answers() noexcept;
  std::size_t parts() const { return ends_.size(); }
  bool unused() const { return unanswered_.load(std::memory_order_acquire) == 0; }
  std::size_t taken = 0;  // parts that some thread answers; with the gatherer's mutex

  // Passes the part on to one of its callers, or delivers it.
  static void answer(const std::shared_ptr<LaunchedFrames>& launch, std::size_t part) noexcept;
  void deliver(std::size_t part) noexcept;

 private:
  bool is_passed_on(std::size_t part) const;
  std::size_t begin_of(std::size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }

  // The frames in the order of their answers, and where in it each part ends.
  std::vector<std::size_t> order_, ends_;
  std::atomic<std::size_t> unanswered_{0};  // parts
};

}  // namespace exphil::core
