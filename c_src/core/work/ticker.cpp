// The thread behind every Ticker; see ticker.hpp.
#include "core/work/ticker.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#ifdef __linux__
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/error.hpp"
#include "core/work/own_thread.hpp"
#include "core/work/service_thread.hpp"
#include "core/work/stop_at_unload.hpp"

namespace exphil::core {

using Clock = std::chrono::steady_clock;

struct Ticker::Entry {
  Clock::time_point start;
  MicroHertz rate = 1;
  Callback callback;
  std::int64_t next = 0;               // the first tick not called yet
  bool waits = false, wanted = false;  // is the thread to look at it at `next`, and to call it then
  std::atomic<bool> ended{false};

  Clock::time_point due(std::int64_t number) const { return start + tick_offset(rate, number); }
};

namespace {

__extension__ using Wide = __int128;  // ticks times 10^15 need 80 bits within a day at 10 kHz

// Nanoseconds of one tick at 1 microhertz.
constexpr std::int64_t kNanosecondsTimesMicroHertz = 1'000'000'000'000'000;

// The last tick due by `passed` after the start; -1 before the start.
std::int64_t last_due(MicroHertz rate, std::chrono::nanoseconds passed) {
  if (passed.count() < 0) return -1;
  auto number = static_cast<std::int64_t>(Wide{passed.count()} * rate / kNanosecondsTimesMicroHertz);
  while (tick_offset(rate, number + 1) <= passed) ++number;  // offsets are rounded to nanoseconds
  return number;
}

class TickerThread : public ServiceThread {
 public:
  void start() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ServiceThread::start([this] { run(); });
  }

  void ask(const std::shared_ptr<Ticker::Entry>& entry, std::int64_t number) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      entry->wanted = true;
      if (stopping_ || entry->waits) return;
      const auto place = waiting_.emplace(entry->due(number), entry);
      entry->next = number, entry->waits = true;
      if (place != waiting_.begin()) return;
    }
    changed_.notify_one();
  }

 private:
  void run() {
    begin_own_thread("exphil_ticks");
    wake_precisely();
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_) {
      if (waiting_.empty()) {
        changed_.wait(lock);
      } else if (const Clock::time_point due = waiting_.begin()->first; Clock::now() < due) {
        changed_.wait_until(lock, due);
      } else {
        auto node = waiting_.extract(waiting_.begin());
        Ticker::Entry& entry = *node.mapped();
        entry.waits = entry.wanted && call(entry, lock);
        // Who wants every tick asks again before the next one, without waking this thread. Reuses the node,
        // so that a tick allocates nothing.
        if (entry.waits) node.key() = entry.due(entry.next), waiting_.insert(std::move(node));
      }
    }
  }

  // Returns whether there may be another call.
  static bool call(Ticker::Entry& entry, std::unique_lock<std::mutex>& lock) {
    const std::int64_t number = std::max(entry.next, last_due(entry.rate, Clock::now() - entry.start));
    entry.next = number + 1, entry.wanted = false;
    lock.unlock();
    const bool done = entry.ended.load(std::memory_order_acquire) || entry.callback(number);
    lock.lock();
    if (!done) entry.wanted = true;
    return !entry.ended;
  }

  std::multimap<Clock::time_point, std::shared_ptr<Ticker::Entry>> waiting_;
};

TickerThread& ticker_thread() {
  static auto* const instance = new TickerThread;
  static StopAtUnload<TickerThread> guard{instance};
  return *guard.owner;
}

}  // namespace

void wake_precisely() {
#ifdef __linux__
  prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds
  // The first version of struct sched_attr, which glibc does not declare before 2.41.
  struct {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t turn, deadline, period;  // nanoseconds
  } attributes{};
  constexpr unsigned kSize = 48;
  static_assert(sizeof(attributes) == kSize, "sched_attr");
  constexpr std::uint64_t kShortTurn = 100'000;  // the least that Linux takes
  if (syscall(SYS_sched_getattr, 0, &attributes, kSize, 0) != 0 || attributes.policy != SCHED_OTHER) return;
  attributes.turn = kShortTurn;
  syscall(SYS_sched_setattr, 0, &attributes, 0);  // where it is refused, the turns stay as they were
#endif
}

MicroHertz micro_hertz(double fps, const char* argument) {
  const double rate = std::round(fps * 1e6);
  if (rate >= 1 && rate <= static_cast<double>(kMostMicroHertz)) return static_cast<MicroHertz>(rate);
  fail(ErrorKind::invalid_argument, argument, argument, " must be from 0.000001 to ",
       kMostMicroHertz / 1'000'000, "; got ", fps);
}

std::chrono::nanoseconds tick_offset(MicroHertz rate, std::int64_t number) {
  return std::chrono::nanoseconds(
      static_cast<std::int64_t>((Wide{number} * kNanosecondsTimesMicroHertz + rate / 2) / rate));
}

Ticker::Ticker(Clock::time_point start, MicroHertz rate, Callback callback) {
  if (rate < 1 || rate > kMostMicroHertz) {
    fail(ErrorKind::invalid_argument, "fps", "a rate must be from 1 to ", kMostMicroHertz,
         " microhertz; got ", rate);
  }
  entry_ = std::make_shared<Entry>();
  entry_->start = start, entry_->rate = rate, entry_->callback = std::move(callback);
  ticker_thread().start();
}

Ticker::~Ticker() {
  stop();
}

Clock::time_point Ticker::due(std::int64_t number) const {
  return entry_->due(number);
}

std::int64_t Ticker::last_due() const {
  return core::last_due(entry_->rate, Clock::now() - entry_->start);
}

void Ticker::ask(std::int64_t number) {
  ticker_thread().ask(entry_, number);
}

void Ticker::stop() noexcept {
  entry_->ended.store(true, std::memory_order_release);
}

}  // namespace exphil::core
