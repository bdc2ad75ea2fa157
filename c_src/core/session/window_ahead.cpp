#include "core/session/window_ahead.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "core/session/session.hpp"
#include "core/work/own_thread.hpp"
#include "core/work/pause.hpp"
#include "core/work/stop_at_unload.hpp"

namespace exphil::core {

using Clock = std::chrono::steady_clock;

struct WindowAhead::Entry {
  explicit Entry(Session& owner) : session(&owner) {}

  std::mutex mutex;
  Session* session;  // null when it has ended
  std::atomic<Clock::rep> last{0};
  std::atomic<bool> queued{false};

  Clock::time_point due() const { return Clock::time_point(Clock::duration(last.load())) + kPause; }
};

namespace {

class AheadThread {
 public:
  using EntryPtr = std::shared_ptr<WindowAhead::Entry>;

  void start() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!thread_.joinable() && !stopping_) thread_ = std::thread([this] { run(); });
  }

  // The entry is wanted after its last frame. Where there is no memory it is not.
  void push(const EntryPtr& entry) noexcept {
    if (entry->queued.exchange(true)) return;
    bool sleeps = false;
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      wanted_.push_back(entry);
      sleeps = std::exchange(sleeps_, false);
    } catch (const std::bad_alloc&) {
      entry->queued.store(false);
    }
    if (sleeps) changed_.notify_one();
  }

  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    begin_own_thread("exphil_ahead");
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (wanted_.empty() && !stopping_) {
        sleeps_ = true;
        changed_.wait(lock, [&] { return stopping_ || !wanted_.empty(); });
        sleeps_ = false;
      }
      if (stopping_) return;
      const EntryPtr entry = std::move(wanted_.front());
      wanted_.pop_front();
      lock.unlock();
      std::this_thread::sleep_until(entry->due());
      entry->queued.store(false);  // before it looks whether another frame has come
      if (Clock::now() < entry->due() || !begin(*entry)) push(entry);
      lock.lock();
    }
  }

  // False where another call has the session.
  static bool begin(WindowAhead::Entry& entry) noexcept {
    const std::lock_guard<std::mutex> lock(entry.mutex);
    if (entry.session == nullptr || entry.session->begin_ahead()) return true;
    entry.last.store(Clock::now().time_since_epoch().count());
    return false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<EntryPtr> wanted_;  // in the order in which they are due, but for microseconds
  bool sleeps_ = false, stopping_ = false;
  std::thread thread_;
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
    : config_(policy.config()),
      prefill_(std::move(prefill)),
      next_(policy.new_state()),
      entry_(std::make_shared<Entry>(session)) {}

WindowAhead::~WindowAhead() {
  const std::lock_guard<std::mutex> lock(entry_->mutex);
  entry_->session = nullptr;
}

bool WindowAhead::is_ready(const FrameWindow& window) noexcept {
  if (stamp_ == 0 || stamp_ != window.stamp()) return false;
  const Clock::time_point end = Clock::now() + kPause;
  try {
    while (!prefill_->done()) {
      if (Clock::now() > end) return false;
      pause_briefly();
    }
    return true;
  } catch (...) {  // the frame's own call reports what is wrong
    stamp_ = 0;
    return false;
  }
}

void WindowAhead::want() noexcept {
  entry_->last.store(Clock::now().time_since_epoch().count());
  ahead_thread().push(entry_);
}

void WindowAhead::begin(const FrameWindow& window) noexcept {
  if (stamp_ == window.stamp()) return;
  stamp_ = 0;
  try {
    const FrameWindow::Frames frames = window.before_next();
    if (frames.count == 0 || !follows_steps(config_, frames.count + 1)) return;
    prefill_->begin(frames.first, frames.count);
    stamp_ = window.stamp();
  } catch (...) {  // the next frame is answered as a whole window, and reports what is wrong
  }
}

}  // namespace exphil::core
