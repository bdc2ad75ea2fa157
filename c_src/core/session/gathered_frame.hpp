// A frame of a session whose policy gathers, as its caller makes it, and the answers that a caller may be
// asked to deliver. Used by nif/gather.cpp; gatherer.hpp launches the frames. A frame is one thread's at a
// time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "core/session/play.hpp"
#include "core/work/push_list.hpp"

namespace exphil::core {

class GatheredAnswers;
class LaunchedFrames;  // launched_frames.hpp
class Session;

// What a launch had, and what it took; the times are measured where it had one frame, and else 0.
struct GatheredLaunch {
  std::int64_t frames = 0;
  float microseconds = 0, processor_microseconds = 0;  // of the thread that launched
};

// One frame of one session, and whoever waits for it. The session is locked from Session::submit until the
// frame has ended, and outlives the frame. An object may be used for one frame after another.
class GatheredFrame {
 public:
  GatheredFrame() = default;
  // As begin() does.
  GatheredFrame(Session& session, const float* obs, bool acts) { begin(session, obs, acts); }
  virtual ~GatheredFrame() = default;
  GatheredFrame(const GatheredFrame&) = delete;
  GatheredFrame& operator=(const GatheredFrame&) = delete;

  // A new frame. acts: it chooses an action. obs: {d_input}, copied.
  void begin(Session& session, const float* obs, bool acts);
  Session& session() const { return *session_; }
  bool acts() const { return acts_; }

  // One of these two, once, when the frame has ended and its session is free again. On a thread of the
  // gatherer, or of a caller to whom it was passed on. out: {d_output}; action: where the frame acts.
  virtual void answer(const float* out, const Action& action, const GatheredLaunch& launch) noexcept = 0;
  virtual void fail(const std::exception_ptr& error) noexcept = 0;
  // Before that, on a thread of the gatherer: asks the owner to deliver the answers of several frames, of
  // which this is one, on a thread of its own. True where it has taken them.
  virtual bool pass_on(std::unique_ptr<GatheredAnswers>& answers) noexcept {
    return static_cast<void>(answers), false;
  }
  // Then, or where the frame was never submitted. The owner may use the object again from here on.
  virtual void release() noexcept { delete this; }

 private:
  friend class Gatherer;
  friend class LaunchedFrames;
  friend class PushList<GatheredFrame>;
  friend class Session;
  Action end(const float* out) noexcept;
  Session* session_ = nullptr;
  bool acts_ = false;
  static constexpr std::size_t kLanes = 256;
  std::size_t lane_ = 0;  // the number of the thread that began it; of more threads some have the same
  std::vector<float> obs_;
  std::chrono::steady_clock::time_point submitted_;  // set where launches may be beside each other
  std::unique_ptr<Noise> noise_;                     // made for the first frame that acts
  GatheredFrame* next_ = nullptr;                    // of the list
};

struct ReleaseFrame {
  ReleaseFrame() = default;
  template <class Frame>
  ReleaseFrame(std::default_delete<Frame>) {}  // of a unique_ptr from make_unique
  void operator()(GatheredFrame* frame) const noexcept { frame->release(); }
};
using GatheredFramePtr = std::unique_ptr<GatheredFrame, ReleaseFrame>;

// Answers of one launch that one thread delivers: those of `part`.
class GatheredAnswers {
 public:
  GatheredAnswers(std::shared_ptr<LaunchedFrames> launch, std::size_t part)
      : launch_(std::move(launch)), part_(part) {}
  ~GatheredAnswers() { deliver(); }
  GatheredAnswers(const GatheredAnswers&) = delete;
  GatheredAnswers& operator=(const GatheredAnswers&) = delete;

  // Every frame's answer() or fail(), and release(). From any thread; later calls do nothing.
  void deliver() noexcept;

 private:
  std::shared_ptr<LaunchedFrames> launch_;  // until they are delivered
  const std::size_t part_;
  std::atomic<bool> delivered_{false};
};

}  // namespace exphil::core
