#include "core/work/background_thread.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "core/work/background.hpp"
#include "core/work/own_thread.hpp"

namespace exphil::core {

namespace {

using Clock = std::chrono::steady_clock;

// A thread of nice 10 gets a tenth of a core that a scheduler also wants, and all of one that nobody wants.
constexpr int kNice = 10;
// Between two offers of the core, while frames are played and otherwise; see give_way() for how they were
// chosen.
constexpr std::chrono::microseconds kTurn{20}, kTurnAlone{200};
// Frames are played, and several calls are there, as long as the last sign of it is not older: six frames at
// 60 FPS.
constexpr std::chrono::milliseconds kRecent{100};

thread_local bool in_background = false, low_priority = false;
std::atomic<Clock::rep> last_frame{0}, last_several{0};

bool is_recent(const std::atomic<Clock::rep>& event, Clock::time_point now) {
  return now - Clock::time_point(Clock::duration(event.load(std::memory_order_relaxed))) <= kRecent;
}

void note(std::atomic<Clock::rep>& event) {
  event.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

id_t this_thread() {
  return static_cast<id_t>(syscall(SYS_gettid));  // PRIO_PROCESS with this is one thread
}

}  // namespace

void begin_background_thread() {
  in_background = true;
  begin_own_thread("exphil_job");
  low_priority = getpriority(PRIO_PROCESS, this_thread()) >= kNice;
}

bool has_low_priority() {
  return low_priority;
}

void lower_priority() {
  if (low_priority) return;
  setpriority(PRIO_PROCESS, this_thread(), kNice);
  low_priority = true;
}

void note_several_calls() {
  note(last_several);
}

bool is_quiet() {
  const Clock::time_point now = Clock::now();
  return !is_recent(last_frame, now) && !is_recent(last_several, now);
}

bool on_background_thread() {
  return in_background;
}

void note_frame() {
  note(last_frame);
}

void give_way() {
  if (!in_background) return;
  thread_local Clock::time_point last{};
  const Clock::time_point now = Clock::now();
  if (now - last < kTurn) return;
  const bool beside_frames = is_recent(last_frame, now);
  if (!low_priority && (beside_frames || is_recent(last_several, now))) lower_priority();
  if (now - last < kTurnAlone && !beside_frames) return;
  sched_yield();
  last = Clock::now();
}

}  // namespace exphil::core
