// Threads that execute one pass together. Every lane runs the same sequence of phases. The pieces of a phase
// are claimed dynamically, and no lane leaves a phase before all of its pieces are done.
//
// A lane may join late or never: the others do its pieces, and a late lane skips the finished phases. So one
// lane is as fast as a single thread, and a helper that the system wakes only after 50 us still takes half of
// the remaining work. Lanes wait by spinning: a phase of one policy step takes a few microseconds, less than
// waking a thread.
//
// Each lane has a side: one side claims the pieces of a phase from the first one on, the other from the last
// one back. So each of two cores reads about the same half of the weights in every pass, and finds it in its
// own cache.
//
// Used by host/policy/forward.cpp. One pass at a time; begin() is called before the lanes start.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/work/background.hpp"
#include "core/work/parallel.hpp"
#include "core/work/pause.hpp"

namespace exphil::host {

// Runs `work` in up to `lanes` threads including the calling one, and returns when all have ended. `work`
// distributes its pieces itself and does not throw. Helpers are optional: where none is available, because
// memory is short, this thread does all the pieces.
template <class Work>
void with_helpers(int lanes, const Work& work) {
  try {
    // A single reference fits into a std::function without an allocation.
    core::parallel_for(lanes, 1, [&work](std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) work();
    });
  } catch (...) {
    work();
  }
}

class Team {
 public:
  explicit Team(std::int64_t phases) : phases_(static_cast<std::size_t>(phases)) {}

  void begin() { begin(static_cast<std::int64_t>(phases_.size())); }
  // For a pass of at most so many phases.
  void begin(std::int64_t phases) {
    for (std::int64_t i = 0; i < phases; ++i) {
      Phase& phase = phases_[static_cast<std::size_t>(i)];
      phase.next.store(0, std::memory_order_relaxed);
      phase.done.store(0, std::memory_order_relaxed);
      for (auto& claimed : phase.claimed) claimed.store(0, std::memory_order_relaxed);
    }
  }

  // Runs body(begin, end) over pieces of `grain` of [0, count) until the lanes have done them all. `index`
  // counts a lane's phases; `side` is its side, 0 or 1. body must not throw: the other lanes would wait
  // forever.
  template <class Body>
  void run(std::int64_t index, int side, std::int64_t count, std::int64_t grain, const Body& body) {
    Phase& phase = phases_[static_cast<std::size_t>(index)];
    const std::int64_t pieces = (count + grain - 1) / grain;
    for (;;) {
      // Not more than `pieces` claims succeed, so those of the two sides do not overlap.
      if (phase.next.fetch_add(1, std::memory_order_relaxed) >= pieces) break;
      const std::int64_t claimed = phase.claimed[side].fetch_add(1, std::memory_order_relaxed);
      const std::int64_t piece = side == 0 ? claimed : pieces - 1 - claimed;
      body(piece * grain, std::min(count, (piece + 1) * grain));
      phase.done.fetch_add(1, std::memory_order_acq_rel);
      core::give_way();
    }
    core::wait_awake([&] { return phase.done.load(std::memory_order_acquire) >= pieces; });
  }

 private:
  struct alignas(64) Phase {
    std::atomic<std::int64_t> next{0}, done{0};
    std::atomic<std::int64_t> claimed[2] = {};  // of each side
  };
  std::vector<Phase> phases_;
};

}  // namespace exphil::host
