// The thread behind every Pace; see pace.hpp.
#include "core/session/pace.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/session/frame_times.hpp"
#include "core/session/scratch_step.hpp"
#include "core/work/own_thread.hpp"
#include "core/work/pause.hpp"
#include "core/work/polling.hpp"
#include "core/work/reaper.hpp"
#include "core/work/service_thread.hpp"
#include "core/work/stop_at_unload.hpp"

namespace exphil::core {

using Clock = std::chrono::steady_clock;

namespace {

// Scratch steps of one wake-up on a device begin at this distance, or at twice their own length.
constexpr std::chrono::microseconds kAgain{300};
// The same of those that this machine computes, but one may follow another at once. It is so short that the
// threads which share a step do not fall asleep between two: then each core reads its half of the weights,
// and has all of it in its cache when the frame comes. On two quiet cores a paced step in f32 took 191 us
// with a distance of 300 us, 126 with 100 and 113 with 50; 8.5, 10.3 and 10.6% of a core.
constexpr std::chrono::microseconds kAgainHere{100};
// So much earlier than expected frames often come: no scratch step should be under way then.
constexpr std::chrono::microseconds kEarly{100};
// From a frame's arrival to the beginning of its step.
constexpr std::chrono::microseconds kUntilStep{30};

// A policy's scratch step, and when to make it.
struct Warmer {
  explicit Warmer(std::shared_ptr<Policy> own_policy) : policy(own_policy), step(std::move(own_policy)) {}

  const std::shared_ptr<Policy> policy;
  ScratchStep step;                       // of the thread
  std::atomic<Clock::rep> last_frame{0};  // of any paced session of the policy
  std::int64_t round = 0;                 // the last poll that ran a scratch step; of the thread
};

}  // namespace

struct Pace::Entry {
  Entry(std::shared_ptr<Warmer> policy_warmer, std::chrono::nanoseconds frame_period)
      : warmer(std::move(policy_warmer)),
        period(frame_period),
        lead(std::min<std::chrono::nanoseconds>(warmer->step.on_device() ? kLead : kLeadHere, period / 4)),
        bound(std::min<std::chrono::nanoseconds>(kBound, period / 4)),
        times(period) {}

  const std::shared_ptr<Warmer> warmer;
  const std::chrono::nanoseconds period, lead, bound;
  std::atomic<std::int64_t> frames{0};
  std::atomic<Clock::rep> last{0};  // when the last of `frames` came
  std::atomic<bool> dormant{true};  // the thread does not expect a frame; the next one tells it

  // Of the thread:
  FrameTimes times;
  std::int64_t seen = 0;
  std::int64_t helped = 0;  // `frames` when the thread last helped
  int missing = 0;
  Clock::time_point given_up{};  // the expected time of a frame that is not awaited

  bool has_arrived() const { return frames.load() != seen; }
  Clock::time_point wakes() const {
    const Clock::time_point next = times.next();
    if (next == Clock::time_point::max()) return next;
    return (next == given_up ? next + period : next) - lead;
  }

  // Takes note of a frame, or of the frames that are missing by now.
  void update(Clock::time_point now) {
    if (has_arrived()) {
      seen = frames.load();
      times.arrived(Clock::time_point(Clock::duration(last.load(std::memory_order_acquire))));
      missing = 0;
    }
    while (times.next() != Clock::time_point::max() && times.next() + bound <= now) {
      times.missed();
      if (++missing < kMostMissed) continue;
      times.forget();
      dormant.store(true);
      if (has_arrived()) dormant.store(false), update(now);  // it came in this moment
    }
  }
};

namespace {

class PaceThread : public ServiceThread {
 public:
  std::shared_ptr<Pace::Entry> add(const std::shared_ptr<Policy>& policy, std::chrono::nanoseconds period) {
    std::shared_ptr<Warmer> warmer = warmer_of(policy);
    auto entry = std::make_shared<Pace::Entry>(std::move(warmer), period);
    const std::lock_guard<std::mutex> lock(mutex_);
    start([this] { run(); });
    due_room_ = std::max(due_room_, entries_.size() + 1);
    entries_.push_back(entry);
    return entry;
  }

  void remove(const std::shared_ptr<Pace::Entry>& entry) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.erase(std::remove(entries_.begin(), entries_.end(), entry), entries_.end());
  }

  void wake() noexcept {
    { const std::lock_guard<std::mutex> lock(mutex_); }  // not between the thread's last look and its wait
    changed_.notify_one();
  }

 private:
  // One for each policy, as long as a session of it is paced.
  std::shared_ptr<Warmer> warmer_of(const std::shared_ptr<Policy>& policy) {
    const std::lock_guard<std::mutex> lock(warmers_mutex_);
    for (auto it = warmers_.begin(); it != warmers_.end();) {
      it = it->second.expired() ? warmers_.erase(it) : std::next(it);
    }
    std::weak_ptr<Warmer>& known = warmers_[policy.get()];
    std::shared_ptr<Warmer> warmer = known.lock();
    if (!warmer) known = warmer = std::make_shared<Warmer>(policy);
    return warmer;
  }

  void run() {
    begin_own_thread("exphil_pace");
    wake_precisely();
    std::vector<std::shared_ptr<Pace::Entry>> due;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_) {
      const Clock::time_point now = Clock::now();
      Clock::time_point first = Clock::time_point::max();
      for (const auto& entry : entries_) {
        entry->update(now);
        first = std::min(first, entry->wakes());
      }
      if (first == Clock::time_point::max()) {
        changed_.wait(lock);
      } else if (now < first) {
        changed_.wait_until(lock, first);
      } else {
        due.reserve(due_room_);
        for (const auto& entry : entries_) {
          if (entry->wakes() <= now) due.push_back(entry);
        }
        lock.unlock();
        await(due);
        for (auto& entry : due) {
          if (entry.use_count() == 1) reap(std::move(entry));  // its session ended meanwhile
        }
        due.clear();
        lock.lock();
      }
    }
  }

  void await(const std::vector<std::shared_ptr<Pace::Entry>>& due) {
    const Clock::time_point begin = Clock::now();
    const bool awaited = share_.allows(begin) && poll(due);
    share_.spent(Clock::now() - begin);
    if (awaited) return;
    for (const auto& entry : due) entry->given_up = entry->times.next();
  }

  // Until every frame has come or is overdue. False where the thread should sleep instead.
  bool poll(const std::vector<std::shared_ptr<Pace::Entry>>& due) {
    Clock::time_point again = Clock::time_point::min();
    const Awaiting awaiting(due);
    for (PollingPlace place; !stopping_;) {
      const Clock::time_point now = Clock::now();
      const bool waiting = std::any_of(due.begin(), due.end(), [now](const auto& entry) {
        return !entry->has_arrived() && now < entry->times.next() + entry->bound;
      });
      for (const auto& entry : due) help(*entry);
      if (!waiting) break;
      if (!place.may_poll()) return false;
      if (now >= again && !place.wanted() && has_time(due, now)) again = warm(due, now, place);
      for (int i = 0; i < 16; ++i) pause_briefly();
    }
    return true;
  }

  // Steps of the policies expect this thread's help while it exists.
  class Awaiting {
   public:
    explicit Awaiting(const std::vector<std::shared_ptr<Pace::Entry>>& due) : due_(due) { tell(true); }
    ~Awaiting() { tell(false); }
    Awaiting(const Awaiting&) = delete;
    Awaiting& operator=(const Awaiting&) = delete;

   private:
    void tell(bool awaits) {
      for (const auto& entry : due_) entry->warmer->policy->await_step(awaits);
    }
    const std::vector<std::shared_ptr<Pace::Entry>>& due_;
  };

  // Takes part in the step of a frame that has come.
  static void help(Pace::Entry& entry) {
    const std::int64_t frames = entry.frames.load();
    if (frames == entry.seen || frames == entry.helped) return;
    entry.helped = frames;
    entry.warmer->policy->help_step(kUntilStep);
  }

  // Whether a scratch step would end before the frames come.
  bool has_time(const std::vector<std::shared_ptr<Pace::Entry>>& due, Clock::time_point now) const {
    return std::all_of(due.begin(), due.end(), [&](const auto& entry) {
      const Clock::time_point frame = entry->times.next();
      return now + taken_ + kEarly < frame || now > frame + entry->bound / 2;
    });
  }

  // A scratch step of each policy that awaits a frame and has had none just now. Returns when to do it again.
  Clock::time_point warm(const std::vector<std::shared_ptr<Pace::Entry>>& due, Clock::time_point begin,
                         PollingPlace& place) {
    ++round_;
    bool on_device = false;
    for (const auto& entry : due) {
      Warmer& warmer = *entry->warmer;
      const Clock::duration last(warmer.last_frame.load(std::memory_order_acquire));
      if (entry->has_arrived() || warmer.round == round_) continue;
      if (Clock::now().time_since_epoch() - last < kAgain) continue;
      warmer.round = round_;
      warmer.step.run();
      on_device |= warmer.step.on_device();
      if (!warmer.step.on_device()) place.add_companion();  // the helper that shared the step
    }
    const Clock::time_point end = Clock::now();
    taken_ = std::min<Clock::duration>(end - begin, Pace::kLead / 2);
    return on_device ? std::max(begin + kAgain, end + taken_) : begin + kAgainHere;
  }

  std::vector<std::shared_ptr<Pace::Entry>> entries_;
  std::size_t due_room_ = 0;
  std::int64_t round_ = 0;
  PollingShare share_;
  Clock::duration taken_{0};  // by the last scratch steps, at most half of the lead
  std::mutex warmers_mutex_;
  std::map<const Policy*, std::weak_ptr<Warmer>> warmers_;
};

PaceThread& pace_thread() {
  static auto* const instance = new PaceThread;
  static StopAtUnload<PaceThread> guard{instance};
  return *guard.owner;
}

}  // namespace

MicroHertz pace_rate(double fps) {
  return micro_hertz(fps, ":fps");
}

Pace::Pace(std::shared_ptr<Policy> policy, MicroHertz rate) {
  entry_ = pace_thread().add(policy, tick_offset(rate, 1));
}

Pace::~Pace() {
  pace_thread().remove(entry_);
}

void Pace::arrived() noexcept {
  const Clock::duration now = Clock::now().time_since_epoch();
  entry_->warmer->last_frame.store(now.count(), std::memory_order_release);
  // Frames that are played again, in the same frame of the game.
  const Clock::duration last(entry_->last.load(std::memory_order_relaxed));
  if (last.count() != 0 && now - last < entry_->period / 2) return;
  entry_->last.store(now.count(), std::memory_order_release);
  entry_->frames.fetch_add(1);  // before the look at dormant, as the thread looks at both in reverse
  if (entry_->dormant.load() && entry_->dormant.exchange(false)) pace_thread().wake();
}

}  // namespace exphil::core
