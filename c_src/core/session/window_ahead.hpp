// The next frame of a session with a window, begun before it is there. All frames of its window but that one
// are known when the last answer is given; so the state after them is computed between two frames, and the
// next one is a single step from there, with the same bits: a window is its frames one after another, from a
// new agent's state. Of policies that have Policy::prefill_ahead.
//
// A thread begins these states, kPause after a frame: frames that follow each other more closely are answered
// as whole windows, which takes less time in all. Where a frame is not a step, because it came early or after
// a rollback, the work for it was in vain: then so many of the next frames are not begun that such work stays
// a small part of all. One thread serves all sessions of the process; it starts with the first one and is
// joined when the library unloads. Used by session.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "core/policy/policy.hpp"
#include "core/session/frame_window.hpp"

namespace exphil::core {

class Session;

class WindowAhead {
 public:
  static constexpr std::chrono::microseconds kPause{100};
  // How often the thread looks whether a device has such a state: a frame need not ask the device then.
  static constexpr std::chrono::microseconds kLook{50};
  // Where it cannot be begun yet, it is tried again after the first time, then each time after twice as long.
  // Also where another call has the session, which may be that frame.
  static constexpr std::chrono::microseconds kRetry{500}, kLastRetry{4000};
  // After n whole windows one after another 2^(n-1) - 1 frames are not begun, but at most so many.
  static constexpr int kMostPassed = 15;

  // Null where the policy has no such states, or windows of so many frames have other bits than steps.
  // Throws out_of_memory.
  static std::unique_ptr<WindowAhead> make(Session& session, Policy& policy, std::int64_t frames);
  // The thread has no more to do with the session when this returns. Before the object ends.
  void end() noexcept;
  WindowAhead(const WindowAhead&) = delete;
  WindowAhead& operator=(const WindowAhead&) = delete;

  // Whether the next frame may find its state: it is on its way or there. Needs no lock.
  bool has_begun() const noexcept { return begun_.load(std::memory_order_relaxed); }

  // All of these with the session's lock.
  // Whether the state before the next frame of this window is there. Where it is under way it may be awaited,
  // for kPause at the most.
  enum class Wait { no, yes };
  bool is_ready(const FrameWindow& window, Wait wait) noexcept;
  State& state() { return prefill_->state(); }  // to be read alone
  State& next() { return *next_; }              // for the state after that frame, which nobody reads
  // A frame has come, and was a step from the state or not: the state before the one after it is wanted.
  void want(bool was_step) noexcept;
  // By the thread: begins it, or looks whether it is there. When to come again; zero: after the next frame.
  std::chrono::microseconds proceed(const FrameWindow& window) noexcept;

  struct Entry;

 private:
  WindowAhead(Session& session, Policy& policy, std::unique_ptr<PrefillAhead> prefill);
  void begin(const FrameWindow& window);
  void drop() noexcept;

  const Policy& policy_;
  const std::unique_ptr<PrefillAhead> prefill_;
  const std::unique_ptr<State> next_;
  std::uint64_t stamp_ = 0;  // of the frames that `prefill_` has got; 0: none
  bool there_ = false;       // the state after them is
  int passed_ = 0;           // frames that are not begun after a whole window
  int to_pass_ = 0;          // those of them that have not come yet
  std::chrono::microseconds retry_{kRetry};
  std::atomic<bool> begun_{false};
  const std::shared_ptr<Entry> entry_;
};

}  // namespace exphil::core
