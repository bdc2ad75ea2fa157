// Frames of many callers in one launch, for a policy that is loaded with `gather`. A caller submits its frame
// and does not wait; a thread of the gatherer launches all frames that wait, at most most_frames(), when the
// launch before them has ended, and others answer them (on few cores the same thread does both). So a launch
// has as many frames as came during the one before it: few where few agents play, and then it is as fast as a
// step alone. On a device, where launches have many frames, the next one waits for more (end_of_pause): to
// launch, and to wake the callers' schedulers, costs nearly the same for few frames as for hundreds.
//
// On a device, with many cores, a launch may also begin beside another one: where frames have waited for the
// whole pause, or a full launch left them, although that one still computes. The frames of one launch are
// copied, or its answers handed out, while the device computes the other. Launches that end within the pause
// follow one another as before, and so do those of few frames: two agents whose launches ran beside each
// other would never share one. One thread at a time collects the frames of a launch; the threads that collect
// and launch are as many as the launches that may be under way (at_once()).
//
// A frame that is alone does not go through these threads: its caller takes the turn (take_turn) and steps
// where it is. Frames that come meanwhile are gathered, and wait for it: a lone step takes no longer than a
// launch, and beside it they would have a launch each, whose thread has to wake first.
//
// The answers of many frames are passed on: one of the callers, which the thread wakes first, delivers those
// of the others that came from its thread. It is a thread of the VM, and those are mostly its own processes.
// Where a thread that is no scheduler sent a message to each, all such threads took turns at the one
// allocator that the VM has for them, some 250,000 times a second for 4,096 agents: when one of them lost its
// core there, the others slept and woke one after another, and for 100 ms and more nearly every frame was
// late while half of the cores slept.
//
// No caller waits for a lock that another caller or a launch holds: thousands of processes share these calls,
// and where the system takes the core from a thread that holds a lock, all schedulers that need it would
// sleep until that thread has a core again, milliseconds later. Callers push their frames onto a list by one
// exchange of a pointer; only the first frame after a time without any takes the mutex, to wake a thread.
//
// Used by session.cpp and nif/gather.cpp, one object for each policy. Every function is safe from any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/policy/policy.hpp"
#include "core/session/gathered_frame.hpp"
#include "core/session/late_frame.hpp"
#include "core/session/launch_places.hpp"
#include "core/work/own_thread.hpp"
#include "core/work/push_list.hpp"

namespace exphil::core {

class Session;

struct GatherCounts {
  std::int64_t frames = 0, launches = 0, most = 0;  // most: frames of one launch
};

class LaunchedFrames;  // launched_frames.hpp

class Gatherer {
 public:
  // The most frames of a launch. On a device the time for a frame falls up to there (0.52 us of 256 agents,
  // 0.26 of 1024, on an H200), and a policy takes no more in the streams of frames (cuda/policy/policy.cpp).
  // On this machine's cores it does not: more would only be answered later. Policies that are too large for a
  // device's split steps count as those.
  static constexpr std::size_t kMostOnDevice = 1024, kMostOnHost = 256;
  std::size_t most_frames() const { return most_frames_; }
  // The most launches that are under way at the same time: on a device what the policy can use
  // (Policy::batches_at_once), but 1 on few cores, which the launches need themselves.
  static constexpr int kMostAtOnce = 4;
  int at_once() const { return static_cast<int>(places_.most()); }

  // cores: of the machine, which decide how many threads there are.
  explicit Gatherer(std::shared_ptr<Policy> policy, int cores = process_cores());
  ~Gatherer();  // no session of it is left
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  // The right to be the only one who launches.
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
  void finish(Turn turn, std::shared_ptr<LateFrame> late, GatheredFramePtr frame) noexcept;

  GatherCounts counts() const noexcept;

 private:
  friend class Session;
  using Clock = std::chrono::steady_clock;
  // Of Session, when it has its state: one more, or less. The first starts the threads, which have the
  // priority of its thread. Each reserves the policy's memory for launches of most_frames(), or of the
  // windows that there are. window: its frames, 0 where it carries a state. Throws out_of_memory.
  void add_session(std::int64_t window);
  void remove_session(std::int64_t window) noexcept;
  void start_threads();
  // Session::submit has locked the frame's session.
  void submit(GatheredFramePtr frame) noexcept;

  struct Late {
    std::shared_ptr<LateFrame> step;
    GatheredFramePtr frame;
  };

  // A thread that launches, or those that answer.
  struct Sleepers {
    std::condition_variable wake;
    std::atomic<int> idle{0};
  };
  using HasWork = bool (Gatherer::*)() const noexcept;
  void run(Sleepers& sleepers, HasWork has_work, bool launches);
  // By a thread that has the mutex.
  bool may_answer() const noexcept;
  bool launching_thread_has_work() const noexcept;
  Sleepers& who_answers() noexcept;
  void run_late(std::unique_lock<std::mutex>& lock);
  void answer_some(std::unique_lock<std::mutex>& lock);
  void run_launch(std::unique_lock<std::mutex>& lock);
  void end_launch(const LaunchedFrames& launch) noexcept;
  // The first launching thread that sleeps, so that few frames always have the same one; null where none
  // does.
  Sleepers* sleeping_launcher() noexcept;
  // The same by the thread that collects.
  std::optional<Clock::time_point> end_of_pause() noexcept;
  // By the thread that collects, without the mutex.
  std::shared_ptr<LaunchedFrames> unused_launch() noexcept;
  std::shared_ptr<LaunchedFrames> make_launch() noexcept;
  void take_waiting(LaunchedFrames& launch) noexcept;
  // By whoever has the turn.
  void end_turn(std::size_t frames) noexcept;
  // With the mutex, or on a turn.
  void count_launch(std::size_t frames) noexcept;

  // From any thread.
  bool may_collect() const noexcept { return places_.may_collect(long_.load() || left_.load()); }
  bool may_launch() const noexcept { return !waiting_.empty() && may_collect(); }
  void wake_launching_thread() noexcept;  // where one sleeps
  void compute(LaunchedFrames& launch) const noexcept;

  const std::shared_ptr<Policy> policy_;
  const int cores_;
  const bool on_device_;
  const std::size_t most_frames_;

  // A caller that submits pushes its frame, and then reads places_ (whether a thread may collect it) and
  // whether a thread that launches sleeps. Whoever ends a turn or a launch, stops collecting, or goes to
  // sleep writes one of these, and then looks into the list. Where frames wait and may be collected it does
  // so itself, if it is a launching thread that is free now, and else wakes one that sleeps. All of these
  // accesses have one order (seq_cst), so that one of the two sees what the other wrote, and no frame is left
  // without a thread. Who may not collect beside a launch leaves the frame to that launch's thread. long_ and
  // left_ decide that; they change only before a launch ends or a thread stops collecting, and the thread
  // that changes them looks into the list after that.
  PushList<GatheredFrame> waiting_;
  alignas(64) LaunchPlaces places_;
  std::array<Sleepers, kMostAtOnce> launchers_;
  std::atomic<bool> long_{false};  // launches have many frames, and take longer than the longest pause
  std::atomic<bool> left_{false};  // the last launch was full when it was collected, and left frames
  bool full_ = false;              // it was full; of the thread that collects

  // Written with the mutex, or on a turn, beside which there is no launch.
  std::atomic<int> crowd_{0};  // launches of one frame until a caller may step itself
  std::atomic<std::int64_t> frames_{0}, launches_{0}, most_{0};

  std::mutex mutex_;
  float usual_frames_ = 0, usual_microseconds_ = 0;  // recent averages of the threads' launches
  std::optional<Clock::time_point> waiting_since_;   // frames that the last launch left at its end
  Sleepers answerers_;
  std::size_t answering_threads_ = 0;  // none on few cores: the thread that launches answers too
  Late late_;                          // of the turn
  std::vector<std::shared_ptr<LaunchedFrames>> answering_;  // some of their answers are no thread's yet
  bool stopping_ = false;

  std::vector<std::shared_ptr<LaunchedFrames>> launches_made_;  // of the thread that collects

  std::mutex sessions_mutex_;
  std::int64_t windows_ = 0, longest_window_ = 0;  // sessions with one, and frames
  std::vector<std::thread> threads_;
};

}  // namespace exphil::core
