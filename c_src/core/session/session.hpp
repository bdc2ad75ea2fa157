// Sessions and snapshots for nif/: a State, its lock, and a reference that keeps the policy alive. Every call
// is safe from any thread; calls on one session run one after another. Frames of several sessions in one call
// are in session_group.hpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/policy/policy.hpp"
#include "core/session/frame_window.hpp"
#include "core/session/gatherer.hpp"
#include "core/session/history.hpp"
#include "core/session/late_frame.hpp"
#include "core/session/pace.hpp"
#include "core/session/play.hpp"
#include "core/session/replicas.hpp"
#include "core/session/session_mutex.hpp"
#include "core/session/window_ahead.hpp"

namespace exphil::core {

struct SessionOptions {
  std::int64_t window = 0;   // length in frames of a zero-state window for each answer; 0: a carried state
  Pad pad = Pad::repeat;     // of a window
  PlayRules rules;           // of act
  MicroHertz pace = 0;       // frames are expected at this rate; 0: none is
  bool armed = false;        // frames may be launched ahead of their observation: Policy::armed_step
  std::int64_t history = 0;  // how many frames roll_back can go back; each keeps a state resident
};

inline constexpr std::int64_t kMostHistory = 1024;

class Snapshot {
 public:
  // No state where the session has a window. replicas: of a model on several devices, else null.
  Snapshot(std::shared_ptr<Policy> policy, std::shared_ptr<const Replicas> replicas,
           std::unique_ptr<State> state, std::optional<FrameWindow> window, PlayState play)
      : policy_(std::move(policy)),
        replicas_(std::move(replicas)),
        state_(std::move(state)),
        window_(std::move(window)),
        play_(play) {}
  const Replicas* replicas() const { return replicas_.get(); }
  const std::shared_ptr<Policy>& policy() const { return policy_; }
  const State* state() const { return state_.get(); }
  const std::optional<FrameWindow>& window() const { return window_; }
  const PlayState& play() const { return play_; }

 private:
  std::shared_ptr<Policy> policy_;  // declared first, so that the state is freed before the policy
  std::shared_ptr<const Replicas> replicas_;
  std::unique_ptr<State> state_;
  std::optional<FrameWindow> window_;
  PlayState play_;
};

// Is told when a session ends, in the thread that ends it. No group's claim has the session then.
class SessionWatcher {
 public:
  virtual ~SessionWatcher() = default;
  virtual void ended(const Session& session) noexcept = 0;
};

class alignas(64) Session {
 public:
  // A zero state, or an empty window. limit_exceeded where the history is longer than kMostHistory.
  // gatherer: of this policy; null where frames are launched one by one, as those of `armed` are.
  // place: of a model on several devices, that of this policy. Such a session holds one more state.
  explicit Session(std::shared_ptr<Policy> policy, const SessionOptions& options = {},
                   std::shared_ptr<Gatherer> gatherer = nullptr,
                   std::optional<Replicas::Place> place = std::nullopt);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  const std::shared_ptr<Policy>& policy() const { return policy_; }
  bool has_window() const { return window_.has_value(); }

  // may_wait: false on a thread that must not be held up. Such a call throws WouldWait where another one has
  // the session, or a frame cannot be sent to the device at once; and a frame that is not there after
  // kPatience is thrown as Late.
  void step(const float* obs, float* out, bool may_wait = true);
  // One frame, and the action for its outputs by the session's rules. Throws unsupported where the policy has
  // no controller; logits: {d_output} of room.
  Action act(const float* obs, float* logits, bool may_wait = true);
  // null where frames are launched one by one
  Gatherer* gatherer() const { return gatherer_.get(); }
  // step() or act() of a session that gathers, by a caller that does not wait: the frame is answered by a
  // thread of the gatherer. Until then any other call that needs the session waits. Throws as those do, and
  // WouldWait where another call has the session and it may not wait; the frame has not begun then.
  void submit(GatheredFramePtr frame, bool may_wait = true);
  // The history begins anew: one cannot roll back into a prefill. The same holds for restore and
  // import_state.
  void prefill(const float* frames, std::int64_t seq, float* out);

  // Back to the state before the last `frames` frames (step, act and their batches, resimulate), with its
  // window and its state of play. limit_exceeded where fewer are recorded, unsupported without history;
  // nothing has changed then.
  void roll_back(std::int64_t frames, bool may_wait = true);
  // How many frames it can go back now.
  std::int64_t recorded(bool may_wait = true);
  // roll_back, then `seq` steps in one submission: {seq, d_input} -> {seq, d_output}. seq is at most the
  // session's history (limit_exceeded). Where it throws, the session is as before the call, not rolled back.
  void resimulate(std::int64_t frames_back, const float* frames, std::int64_t seq, float* out,
                  bool may_wait = true);
  // The same with the action of each frame; logits: {seq, d_output} of room.
  std::vector<Action> resimulate_acts(std::int64_t frames_back, const float* frames, std::int64_t seq,
                                      float* logits, bool may_wait = true);

  // Tells it once, however often this is called, and only if it still exists then.
  void tell_when_it_ends(const std::shared_ptr<SessionWatcher>& watcher);

  // Whether its windows are begun ahead: those that are not take far longer.
  bool begins_windows() const { return ahead_ != nullptr; }
  // Whether step and act may be called with may_wait = false on a policy that waits for a device, or where
  // windows are begun ahead. With a window, the next one.
  bool splits_frames() const {
    return window_ ? split_window_ != nullptr || (ahead_ && ahead_->has_begun()) : split_ != nullptr;
  }

  // Expects frames at this rate from now on, or none where it is 0; see pace.hpp. Throws as Pace does;
  // nothing has changed then.
  void set_pace(MicroHertz rate);
  // The next frame comes within the next few hundred microseconds; for a session with `armed`. Does nothing
  // where another call has the session.
  void arm() noexcept;
  // WindowAhead::proceed(), by its thread. Nothing is done where another call has the session.
  std::chrono::microseconds proceed_ahead() noexcept;
  // The caller has just prepared for the next frame itself (ScratchStep on its own thread), so that frame
  // does not count for the pace: where every frame is like that, the pace's thread sleeps.
  void caller_has_warmed() noexcept { caller_warmed_.store(true, std::memory_order_relaxed); }

  // Whether the last frame of step() and act() chose an action.
  bool acts() const noexcept { return acts_.load(std::memory_order_relaxed); }

  // That snapshot() or restore() copies. It never changes, and needs no lock.
  std::int64_t copied_floats() const {
    return window_ ? window_->floats() : policy_->config().state_floats();
  }
  std::unique_ptr<Snapshot> snapshot(bool may_wait = true);
  // mismatch unless the snapshot is of this session's model. That of another device is read from there.
  void restore(const Snapshot& snapshot, bool may_wait = true);
  std::vector<std::uint8_t> export_state();
  void import_state(const std::uint8_t* bytes,
                    std::size_t size);  // invalid_state or mismatch; unchanged then

 private:
  friend class GatheredFrame;
  friend class Gatherer;
  friend class GroupLocks;
  friend class LateFrame;
  friend class SessionGroup;
  using Lock = std::unique_lock<SessionMutex>;
  const Replicas* replicas() const { return place_ ? place_->replicas().get() : nullptr; }
  // Whether states of the policy mean the same here.
  bool is_of_model(const Policy* policy, const Replicas* replicas) const {
    return policy == policy_.get() || (replicas != nullptr && replicas == this->replicas());
  }
  Lock lock_for_step(bool may_wait);
  void frame_arrived() {
    const bool warmed = caller_warmed_.load(std::memory_order_relaxed) &&
                        caller_warmed_.exchange(false, std::memory_order_relaxed);
    if (pace_ && !warmed) pace_->arrived();
  }
  void step_locked(const float* obs, float* out, bool may_wait);
  // A frame of a call that may not wait. Throws Late, and has given up the lock then. noise: null where the
  // frame chooses no action; prepared here, while the device computes.
  void step_split(Lock& lock, const float* obs, float* out, Noise* noise);
  bool has_splits() const { return split_ != nullptr || split_window_ != nullptr; }
  void begin_split(const float* obs);
  bool finish_split_within(std::chrono::microseconds time, float* out);
  void finish_split(float* out);
  void end_split();
  template <class Work>
  void or_undo_push(Work work);
  void step_window(const float* obs, float* out);
  // The answers of the windows that end at the last `count` frames of `window`, through the ring. Where it
  // throws, the ring lacks the frames that `window` does not call held.
  void answer_windows(FrameWindow& window, std::int64_t count, float* out);
  AgentWindow agent_window() const;  // that ends at the last frame
  // `seq` frames of a session with a window, which first goes back `back` frames. Where it throws, nothing
  // has changed.
  void run_windows(std::int64_t back, const float* frames, std::int64_t seq, float* out);
  void prepare_noise_locked(Noise* noise);
  Action choose_locked(const float* logits, const Noise& noise);
  Action choose_locked(const float* logits);
  void require_recorded(std::int64_t frames_back) const;
  // Leaves the history at the state that the frames start from; the caller advances it.
  void resimulate_locked(std::int64_t frames_back, const float* frames, std::int64_t seq, float* out);

  // What a group needs of each of its sessions: two lines of memory, which no cache has of thousands.
  std::shared_ptr<Policy> policy_;
  History history_;             // the current state and those before it; no states where there is a window
  std::unique_ptr<Pace> pace_;  // null where no frame is expected
  std::atomic<bool> caller_warmed_{false}, acts_{false};
  SessionMutex mutex_;

  const std::optional<Replicas::Place> place_;  // of a model on several devices
  std::shared_ptr<Gatherer> gatherer_;
  const PlayRules rules_;
  std::optional<FrameWindow> window_;
  std::unique_ptr<FrameRing> ring_;  // what the policy keeps of these frames
  // Null where frames are computed in the calling thread; with a window, of frames that ahead_ has begun.
  std::unique_ptr<SplitStep> split_;
  SplitWindow* split_window_ = nullptr;  // of the ring

  std::mutex watchers_mutex_;
  std::vector<std::weak_ptr<SessionWatcher>> watchers_;

  SplitFrame* in_progress_ = nullptr;   // split_ or split_window_
  std::unique_ptr<WindowAhead> ahead_;  // with a window, where the policy has it
};

}  // namespace exphil::core
