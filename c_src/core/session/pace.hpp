// A session's expectation of its next frame. A step that comes once in 16.7 ms finds a sleeping processor,
// and weights that are in no cache; several times slower than one that follows another. So a thread wakes
// shortly before the frame is due, runs a step on a scratch state of the same policy, and polls until the
// frame comes or a bound has passed. On the CPU it then computes a part of the frame's step: it is awake, and
// its core has the weights of that part in its cache. One thread serves all paced sessions of the process; it
// starts with the first one and is joined when the library unloads.
//
// A frame that comes early, late or never costs nothing but the thread's time. Real steps wait for nothing
// here: at most one scratch step runs beside a frame, and none starts while frames of the policy arrive.
// Where other threads wait for a core, or where the thread has polled for more than half of the time
// (polling.hpp), frames come as they would without a pace.
#pragma once

#include <chrono>
#include <memory>

#include "core/policy/policy.hpp"
#include "core/work/ticker.hpp"

namespace exphil::core {

// Frames per second as a rate. Throws invalid_argument (":fps") beyond kMostMicroHertz.
MicroHertz pace_rate(double fps);

class Pace {
 public:
  // How long before a frame the thread wakes, on a device and where this machine computes it, how long after
  // the expected time it still polls (all at most a quarter of the period), and how many missing frames in a
  // row end it until the next one.
  static constexpr std::chrono::microseconds kLead{1000}, kLeadHere{1500}, kBound{1000};
  static constexpr int kMostMissed = 8;

  // Expects frames at this rate, from the second one on. Throws out_of_memory.
  Pace(std::shared_ptr<Policy> policy, MicroHertz rate);
  // No frame is expected after this. A scratch step in progress may still end later.
  ~Pace();
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  // A frame is there. Called by one thread at a time, before its step.
  void arrived() noexcept;

  struct Entry;

 private:
  std::shared_ptr<Entry> entry_;
};

}  // namespace exphil::core
