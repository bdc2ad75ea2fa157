// Frames of many callers in one launch, for a policy that is loaded with `gather`. A caller submits its frame
// and does not wait; threads of the gatherer launch all frames that wait, at most kMost, as soon as the
// launch before them has ended, and answer each. So a launch has as many frames as came during the one before
// it: few where few agents play, and then it is as fast as a step alone.
//
// A frame that is alone does not go through these threads: its caller takes the turn (take_turn) and steps
// where it is. Frames that come meanwhile are gathered.
//
// Used by session.cpp and nif/gather.cpp, one object for each policy. Every function is safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/policy/policy.hpp"
#include "core/session/late_frame.hpp"
#include "core/session/play.hpp"

namespace exphil::core {

class Session;

// What a launch had, and what it took; the times are measured where it had one frame, and else 0.
struct GatheredLaunch {
  std::int64_t frames = 0;
  float microseconds = 0, processor_microseconds = 0;  // of the thread that launched
};

// One frame of one session, and whoever waits for it. The session is locked from Session::submit until the
// frame has ended, and outlives this object.
class GatheredFrame {
 public:
  // acts: the frame chooses an action. obs: {d_input}, copied.
  GatheredFrame(Session& session, const float* obs, bool acts);
  virtual ~GatheredFrame() = default;
  GatheredFrame(const GatheredFrame&) = delete;
  GatheredFrame& operator=(const GatheredFrame&) = delete;

  Session& session() const { return session_; }
  bool acts() const { return acts_; }

  // One of these two, once, when the frame has ended and its session is free again. On a thread of the
  // gatherer, which then destroys the object. out: {d_output}; action: where the frame acts.
  virtual void answer(const float* out, const Action& action, const GatheredLaunch& launch) noexcept = 0;
  virtual void fail(const std::exception_ptr& error) noexcept = 0;

 private:
  friend class Gatherer;
  friend class Session;
  Session& session_;
  const bool acts_;
  std::vector<float> obs_;
  std::unique_ptr<Noise> noise_;  // where it acts, once it is submitted
};

struct GatherCounts {
  std::int64_t frames = 0, launches = 0, most = 0;  // most: frames of one launch
};

class Gatherer {
 public:
  // The most frames of a launch. A device's time for a frame hardly falls beyond it (0.52 us of 256 agents,
  // 0.40 of 1024, on an H200), and those that come during a launch wait for its end.
  static constexpr std::size_t kMost = 256;

  explicit Gatherer(std::shared_ptr<Policy> policy) : policy_(std::move(policy)) {}
  ~Gatherer();  // no session of it is left
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  // The right to launch, which one thread has at a time.
  class Turn {
   public:
    explicit Turn(Gatherer& gatherer) : gatherer_(&gatherer) {}
    Turn(Turn&& other) noexcept : gatherer_(std::exchange(other.gatherer_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (gatherer_ != nullptr) gatherer_->end_turn(1);
    }
    // Nothing was launched.
    void give_up() { std::exchange(gatherer_, nullptr)->end_turn(0); }

   private:
    friend class Gatherer;
    Gatherer* gatherer_;
  };
  // For a frame that its caller steps itself: where nothing is launched and no frame waits, and the last
  // launches had one frame each. Its holder waits for no session.
  std::optional<Turn> take_turn() noexcept;

  // Instead of the caller that has begun a frame on its turn: waits for the device and answers.
  void finish(Turn turn, std::shared_ptr<LateFrame> late, std::unique_ptr<GatheredFrame> frame) noexcept;

  GatherCounts counts() const;

 private:
  friend class Session;
  // Of Session: one more, or less. The first starts the threads, which have the priority of its thread. Makes
  // room for a launch with a frame of each session: throws out_of_memory.
  void add_session();
  void remove_session() noexcept;
  // Session::submit has locked the frame's session. Throws std::bad_alloc; nothing has changed then.
  void submit(std::unique_ptr<GatheredFrame>&& frame);

  struct Launch;
  struct Late {
    std::shared_ptr<LateFrame> step;
    std::unique_ptr<GatheredFrame> frame;
  };

  void run();  // a thread
  bool has_work() const { return late_.step != nullptr || (!launching_ && !waiting_.empty()); }
  void end_turn(std::size_t frames) noexcept;
  void end_launch(std::size_t frames) noexcept;
  void run_late(std::unique_lock<std::mutex>& lock, Launch& launch);
  void run_launch(std::unique_lock<std::mutex>& lock, Launch& launch);
  static void compute(Launch& launch) noexcept;
  static void deliver(Launch& launch) noexcept;

  const std::shared_ptr<Policy> policy_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::unique_ptr<GatheredFrame>> waiting_;
  Late late_;               // of the turn, where `launching_`
  bool launching_ = false;  // somebody has the turn
  int crowd_ = 0;           // launches of one frame until a caller may step itself
  bool stopping_ = false;
  GatherCounts counts_;

  std::mutex sessions_mutex_;
  std::int64_t sessions_ = 0, room_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace exphil::core
