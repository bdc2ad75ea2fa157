// How a call spreads over this machine's cores, bounded by the :threads option.
//
// A step and a direct call (one of a scheduler thread) use oneTBB, each kind in an arena of its own, because
// a thread that finds an arena full waits for another to leave it. oneTBB's workers stay awake for some tens
// of microseconds between two steps that follow one another at once. A large call uses the library's
// background threads (background.hpp), which give way to everything else.
#pragma once

#include <cstdint>
#include <functional>

namespace exphil::core {

// Takes effect for later calls. 0 means the default, the number of cores, which is also the maximum.
// threads() returns the number in use.
void set_threads(int threads);
int threads();

// Calls body(begin, end) over disjoint ranges that cover [0, count), each at least `grain` long except the
// last, and returns when all are done. Runs in the calling thread where
// there is only one range. The result must not depend on where the
// ranges are cut. The first exception thrown by a body is rethrown here.
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

// So many of the threads that help with direct calls wake up, and look for work for some tens of
// microseconds: for a call that will use them soon, because a thread that sleeps needs as long to wake up as
// to copy hundreds of frames. Does nothing where there is no memory for it.
void wake_helpers(int count) noexcept;

// A frame is being computed in this thread: while it exists, parallel_for here uses the steps' arena. A large
// call that steps many sessions in the background is not a frame: there it changes nothing.
class StepScope {
 public:
  StepScope();
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  const bool counts_;
};

// From now on parallel_for in this thread, which is one of the library's own, uses no other.
void compute_alone() noexcept;

}  // namespace exphil::core
