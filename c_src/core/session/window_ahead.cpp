#include "core/session/window_ahead.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/session/session.hpp"
#include "core/work/own_thread.hpp"
#include "core/work/pause.hpp"
#include "core/work/service_thread.hpp"
#include "core/work/stop_at_unload.hpp"

namespace exphil::core {

using Clock = std::chrono::steady_clock;

struct WindowAhead::Entry {
  explicit Entry(Session& owner) : session(&owner) {}

  std::mutex mutex;
  Session* session;  // null when it has ended
  std::atomic<bool> queued{false};
  std::atomic<Clock::rep> due{0};  // not before then; put off by each frame

  void put_off(Clock::duration time) { due.store((Clock::now() + time).time_since_epoch().count()); }
  Clock::time_point due_time() const { return Clock::time_point(Clock::duration(due.load())); }
};

namespace {

class AheadThread : public ServiceThread {
 public:
  using EntryPtr = std::shared_ptr<WindowAhead::Entry>;

  void start() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ServiceThread::start([this] { run(); });
  }

  // The thread turns to the entry when it is due. Where there is no memory it does not.
  void push(const EntryPtr& entry) noexcept {
    if (entry->queued.exchange(true)) return;
    const Clock::time_point time = entry->due_time();
    bool oversleeps = false;
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      wanted_.emplace(time, entry);
      oversleeps = time < wakes_;
    } catch (const std::bad_alloc&) {
      entry->queued.store(false);
    }
    if (oversleeps) changed_.notify_one();
  }

 private:
  void run() {
    begin_own_thread("exphil_ahead");
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_) {
      const Clock::time_point next = wanted_.empty() ? Clock::time_point::max() : wanted_.begin()->first;
      if (Clock::now() < next) {
        sleep_until(next, lock);
        continue;
      }
      const EntryPtr entry = std::move(wanted_.begin()->second);
      wanted_.erase(wanted_.begin());
      lock.unlock();
      entry->queued.store(false);  // before it looks whether another frame has come
      if (Clock::now() < entry->due_time() || proceed(*entry)) push(entry);
      lock.lock();
    }
  }

  void sleep_until(Clock::time_point time, std::unique_lock<std::mutex>& lock) {
    wakes_ = time;
    if (time == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, time);
    }
    wakes_ = Clock::time_point::min();
  }

  static bool proceed(WindowAhead::Entry& entry) noexcept {
    const std::lock_guard<std::mutex> lock(entry.mutex);
    if (entry.session == nullptr) return false;
    const std::chrono::microseconds pause = entry.session->proceed_ahead();
    if (pause.count() == 0) return false;
    entry.put_off(pause);
    return true;
  }

  // By when they were due when they were pushed.
  std::multimap<Clock::time_point, EntryPtr> wanted_;
  Clock::time_point wakes_ = Clock::time_point::min();  // while it sleeps: when it looks again
};

// Whether a window of so many frames has the bits of their steps.
bool follows_steps(const PolicyConfig& config, std::int64_t frames) {
  return decays_input(config.network, frames) == decays_input(config.network, config.window);
}

AheadThread& ahead_thread() {
  static auto* const instance = new AheadThread;
  static StopAtUnload<AheadThread> guard{instance};
  return *guard.owner;
}

}  // namespace

std::unique_ptr<WindowAhead> WindowAhead::make(Session& session, Policy& policy, std::int64_t frames) {
  if (frames < 2 || !follows_steps(policy.config(), frames)) return nullptr;
  std::unique_ptr<PrefillAhead> prefill = policy.prefill_ahead(frames - 1);
  if (!prefill) return nullptr;
  ahead_thread().start();
  return std::unique_ptr<WindowAhead>(new WindowAhead(session, policy, std::move(prefill)));
}

WindowAhead::WindowAhead(Session& session, Policy& policy, std::unique_ptr<PrefillAhead> prefill)
    : policy_(policy),
      prefill_(std::move(prefill)),
      next_(policy.new_state()),
      entry_(std::make_shared<Entry>(session)) {}

void WindowAhead::end() noexcept {
  const std::lock_guard<std::mutex> lock(entry_->mutex);
  entry_->session = nullptr;
}

bool WindowAhead::is_ready(const FrameWindow& window, Wait wait) noexcept {
  if (stamp_ == 0 || stamp_ != window.stamp()) return false;
  const Clock::time_point end = there_ || wait == Wait::no ? Clock::time_point() : Clock::now() + kPause;
  try {
    while (!there_ && !(there_ = prefill_->done())) {
      if (Clock::now() > end) return false;
      pause_briefly();
    }
  } catch (...) {  // the frame's own call reports what is wrong
    drop();
  }
  return there_;
}

void WindowAhead::want(bool was_step) noexcept {
  drop();
  if (was_step) {
    passed_ = 0;
  } else if (to_pass_ > 0) {
    if (--to_pass_ > 0) return;
  } else {
    to_pass_ = passed_;
    passed_ = std::min(2 * passed_ + 1, kMostPassed);
    if (to_pass_ > 0) return;
  }
  retry_ = kRetry;
  entry_->put_off(kPause);
  ahead_thread().push(entry_);
}

std::chrono::microseconds WindowAhead::proceed(const FrameWindow& window) noexcept {
  try {
    if (stamp_ != window.stamp()) {
      begin(window);
    } else {
      there_ = there_ || prefill_->done();
    }
  } catch (const WouldWait&) {
    const std::chrono::microseconds retry = std::exchange(retry_, 2 * retry_);
    return retry > kLastRetry ? std::chrono::microseconds::zero() : retry;
  } catch (...) {  // the next frame is answered as a whole window, and reports what is wrong
    drop();
  }
  return policy_.on_device() && stamp_ != 0 && !there_ ? kLook : std::chrono::microseconds::zero();
}

void WindowAhead::begin(const FrameWindow& window) {
  drop();
  const FrameWindow::Frames frames = window.before_next();
  if (frames.count == 0 || !follows_steps(policy_.config(), frames.count + 1)) return;
  prefill_->begin(frames.first, frames.count);
  stamp_ = window.stamp();
  begun_.store(true, std::memory_order_relaxed);
}

void WindowAhead::drop() noexcept {
  if (stamp_ != 0 && !there_) prefill_->drop();
  stamp_ = 0, there_ = false;
  begun_.store(false, std::memory_order_relaxed);
}

}  // namespace exphil::core
