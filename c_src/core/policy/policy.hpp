// A policy resident on a backend: the interface that host/ and cuda/ implement. core/session/session.hpp
// adds locking and lifetime on top for nif/.
//
// Thread-safety: any thread may call, several concurrently, except that two calls must not use the same State
// concurrently unless both only read it (Session ensures that). Same inputs give the same bits, whatever else
// is in the batch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "core/policy/config.hpp"

namespace exphil::core {

// One agent's recurrent state in the policy's memory. Opaque outside its backend; freed from any thread.
class State {
 public:
  virtual ~State() = default;
  // What its memory is a part of, by which a backend knows the states of one of its policies; null where it
  // does not ask.
  const void* owner() const { return owner_; }

 protected:
  explicit State(const void* owner = nullptr) : owner_(owner) {}

 private:
  const void* const owner_;
};

// `count` windows of `seq` frames. Window i starts in slot first + i; its frames are in consecutive slots,
// slot 0 after the last one. All frames together, seq + count - 1, fit into the ring.
struct RingWindows {
  std::int64_t first = 0, seq = 0, count = 1;
  std::int64_t fresh = 0;      // of all these frames, how many of the last ones are not in the ring yet
  const float* obs = nullptr;  // {fresh, d_input}
};

// A frame in two parts, for a caller that must not wait until the device has computed it: SplitStep or
// SplitWindow begins it. One frame at a time, and one thread at a time.
class SplitFrame {
 public:
  // Drops a frame in progress: waits for the device, and changes no state.
  virtual ~SplitFrame() = default;
  // Waits for the frame at most so long. Where it has come: writes `out`, {d_output}, changes the state, ends
  // the frame and returns true. Where it throws, the frame has ended and no state has changed.
  virtual bool finish_within(std::chrono::microseconds time, float* out) = 0;
  // The same without a bound. Where it throws, the frame has ended and no state has changed.
  virtual void finish(float* out) = 0;
};

// That of a session with a window.
class SplitWindow : public SplitFrame {
 public:
  // Sends the fresh frames of one window to the device; obs is not read after this returns. Throws WouldWait
  // where that may take long now. Where it throws, no frame is in progress.
  virtual void begin(const RingWindows& window) = 0;
};

// The part of a session's last frames that does not depend on where a window starts: kept_of_frame()
// (core/policy/network.hpp) of each frame, in the policy's memory. Frame t is in slot t modulo the number of
// slots. The policy outlives its use; freed from any thread.
class FrameRing {
 public:
  virtual ~FrameRing() = default;
  // Puts the fresh frames into the ring and answers the windows, with the bits of Policy::window(): {count,
  // d_output}. One call at a time. Where it throws, the slots of the fresh frames are unset.
  virtual void answer(const RingWindows& windows, float* out) = 0;
  // The same of one window in two parts; null where a caller has to wait. Where any of them throws, the slots
  // of the fresh frames are unset. Part of the ring, whose end drops a frame in progress.
  virtual SplitWindow* split() { return nullptr; }
};

// One of several windows that are answered together, each of an agent of its own.
struct AgentWindow {
  FrameRing* ring = nullptr;
  RingWindows ring_windows;       // count is 1
  const float* frames = nullptr;  // all of them: {seq, d_input}
  bool in_ring = false;           // set by the call: the ring holds the fresh frames now
};

// What a policy keeps of states that advance together, from one frame to the next. One call at a time.
class GroupMemory {
 public:
  virtual ~GroupMemory() = default;
};

// States that advance together: from, to and kept of Policy::advance_group().
struct GroupStates {
  State* const* from;
  State* const* to;
  GroupMemory* kept;
};

// Thrown where a call may not wait and would have to. Nothing has changed then.
struct WouldWait {};

// How long a call that may not wait polls for the device.
inline constexpr std::chrono::microseconds kPatience{200};

// That of one agent's state. The policy outlives the object.
class SplitStep : public SplitFrame {
 public:
  // Sends a frame to the device, which changes `to`. `obs` is not read after this returns; the states are in
  // use until the frame has ended. Throws WouldWait where that may take long now. Where it throws, no frame
  // is in progress.
  virtual void begin(const State& from, State& to, const float* obs) = 0;
  // Of armed_step(): a frame of this state is expected within the next few hundred microseconds, and may be
  // launched ahead of its observation. Not while a frame is in progress.
  virtual void arm(const State& /*from*/) noexcept {}
  // Drops what was launched ahead: the state that it reads is about to change, without the policy's
  // knowledge.
  virtual void disarm() noexcept {}
};

// The state that a new agent has after some frames, computed while the caller goes on: by a device, or by a
// background thread. One call at a time; the policy outlives the object.
class PrefillAhead {
 public:
  virtual ~PrefillAhead() = default;  // waits for what is under way
  // Begins with `seq` frames, {seq, d_input}, which change state() from now on. May wait for others that are
  // under way; throws WouldWait where it should be tried again later. The frames are not read after this
  // returns.
  virtual void begin(const float* frames, std::int64_t seq) = 0;
  // Whether the state is there. Throws the error of what begin() has begun.
  virtual bool done() = 0;
  // Nobody wants the state any more.
  virtual void drop() noexcept {}
  virtual State& state() = 0;  // to be read alone, when it is there
};

struct PolicyOptions {
  // States (sessions and snapshots) that fit before new_state grows its memory; left out, as the backend has
  // it.
  std::optional<std::int64_t> max_sessions;
  int device = 0;
};

class Policy {
 public:
  virtual ~Policy() = default;

  virtual const PolicyConfig& config() const = 0;
  virtual std::uint64_t fingerprint() const = 0;
  virtual std::size_t resident_bytes() const = 0;  // weights, states and groups held now

  virtual std::unique_ptr<State> new_state() = 0;  // a new agent's; throws out_of_memory
  virtual void copy_state(State& to, const State& from) = 0;

  // values: {state_floats}, the parts of config().network.states one after another. Host memory, f32.
  virtual void read_state(const State& state, float* values) = 0;
  virtual void write_state(State& state, const float* values) = 0;

  // Advances each of `count` distinct states by one frame. obs: {count, d_input}; out: {count, d_output}.
  // Host memory.
  void step(State* const* states, std::int64_t count, const float* obs, float* out) {
    advance(states, states, count, obs, out);
  }
  // The same, but reads from[i] and writes to[i], which may be one state or two; from[i] keeps its value
  // where they are two. Where it throws, no state has changed.
  virtual void advance(State* const* from, State* const* to, std::int64_t count, const float* obs,
                       float* out) = 0;
  // The same for some rows of a larger batch: state i reads row rows[i] of obs and writes that row of out.
  // Here by way of a copy.
  virtual void advance_rows(State* const* from, State* const* to, std::int64_t count,
                            const std::int64_t* rows, const float* obs, float* out);
  // The same, or advance() where rows is null, of states that advance together again and again, with what
  // this policy keeps of them.
  virtual void advance_group(State* const* from, State* const* to, std::int64_t count,
                             const std::int64_t* rows, const float* obs, float* out, GroupMemory* /*kept*/) {
    rows == nullptr ? advance(from, to, count, obs, out) : advance_rows(from, to, count, rows, obs, out);
  }
  // The same for states that are a guess, so that the caller can find out what its own are meanwhile. While
  // the policy computes the frames, which it checks, it calls is_right() once, in this thread; false drops
  // them. Returns whether the states have advanced. A policy that has no use for a guess returns false
  // without calling it. What is_right() throws is thrown here, and no state has changed.
  virtual bool advance_group_if(const std::function<bool()>& /*is_right*/, const GroupStates& /*states*/,
                                std::int64_t /*count*/, const float* /*obs*/, float* /*out*/) {
    return false;
  }
  // For so many states. Null where the policy keeps nothing of them.
  virtual std::unique_ptr<GroupMemory> group_memory(std::int64_t /*count*/) { return nullptr; }
  // Whether these throw what require_finite() throws of "obs", and the caller need not look: a policy that
  // copies so many frames finds it out at no cost.
  virtual bool checks_frames(std::int64_t /*count*/) const { return false; }
  // How many threads should be awake to help a call that copies the frames of so many agents.
  virtual int copying_helpers(std::int64_t /*count*/) const { return 0; }

  // How many advances of several states are worth making at the same time: more would wait for each other.
  virtual int batches_at_once() const { return 1; }
  // From now on an advance of up to `count` states allocates no memory of the backend, nor do `at_once` of
  // them at the same time, unless other calls use it up: a new state does. Cheap where that memory is there.
  // Throws out_of_memory.
  virtual void reserve_batch(std::int64_t /*count*/, int /*at_once*/) {}
  // The same of answer_windows(), of up to `count` windows of at most `seq` frames.
  virtual void reserve_windows(std::int64_t /*count*/, std::int64_t /*seq*/) {}

  // Whether it computes elsewhere than in threads of this process.
  virtual bool on_device() const { return false; }

  // Null where the policy has no frames that a caller need not wait for.
  virtual std::unique_ptr<SplitStep> split_step() { return nullptr; }
  // The same, with frames that may be launched ahead of their observation after arm() or, where a frame
  // starts from the state that the one before has written, while that one is computed, if they follow each
  // other closely. Same bits. Throws unsupported where the device or the policy has no such frames.
  enum class Frames { one_after_another, each_by_itself };
  virtual std::unique_ptr<SplitStep> armed_step(Frames /*frames*/) {
    fail(ErrorKind::unsupported, ":latency",
         "latency: :armed needs a policy on a GPU; this one is on the CPU backend");
  }

  // Of up to so many frames. Null where that is not worth a thread: a policy on a device needs split_step(),
  // one that computes here enough to do. Throws out_of_memory.
  virtual std::unique_ptr<PrefillAhead> prefill_ahead(std::int64_t /*seq*/) { return nullptr; }

  // For a thread that is awake when a frame comes (core/session/pace.cpp). Between await_step(true) and
  // await_step(false) a step of another thread expects it in help_step(), in which it takes part in a step
  // that is under way, or begins within `patience`. Returns whether there was one. Neither does anything
  // where a step is computed elsewhere.
  virtual void await_step(bool /*awaits*/) noexcept {}
  virtual bool help_step(std::chrono::nanoseconds /*patience*/) noexcept { return false; }

  // One agent's `seq` frames, one after another in one submission, with the bits of as many calls of advance:
  // frame t reads the state before it (`from`, then to[t - 1]) and writes to[t]. The `to` are distinct and
  // none is `from`, which keeps its value. Where it throws, no state has changed.
  virtual void advance_chain(State& from, State* const* to, std::int64_t seq, const float* frames,
                             float* out) = 0;
  // From now on an advance_chain of up to `seq` frames allocates no memory of the backend, unless other calls
  // use it up. Throws out_of_memory.
  virtual void reserve_chain(std::int64_t seq) = 0;

  // The same as stepping `seq` frames one by one: {seq, d_input} -> {seq, d_output}. seq may be 0.
  virtual void prefill(State& state, const float* frames, std::int64_t seq, float* out) = 0;

  // Stateless: runs each of `count` windows {seq, d_input} from a zero state and returns its last output
  // only: {count, d_output}.
  virtual void window(const float* windows, std::int64_t count, std::int64_t seq, float* out) = 0;

  // A ring of `slots` frames, none of which is set. Throws out_of_memory.
  virtual std::unique_ptr<FrameRing> new_ring(std::int64_t slots) = 0;

  // The answers of these windows, through their rings or not: {count, d_output}, the same bits either way.
  // Where it throws, the fresh slots of their rings are unset. One call at a time for each ring.
  virtual void answer_windows(AgentWindow* windows, std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i) {
      windows[i].ring->answer(windows[i].ring_windows, out + i * config().d_output);
      windows[i].in_ring = true;
    }
  }
};

}  // namespace exphil::core
