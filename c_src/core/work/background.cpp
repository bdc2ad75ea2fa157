#include "core/work/background.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/work/background_thread.hpp"
#include "core/work/fair_queue.hpp"
#include "core/work/parallel.hpp"
#include "core/work/pieces.hpp"

namespace exphil::core {

namespace {

// One queue for the jobs that compute, one for those that read files, and one for each device. Devices beyond
// these share queues.
constexpr int kMostDevices = 16, kQueues = 2 + kMostDevices;
// A scan or a batch of windows has three streams. A CUDA device has eight hardware queues
// (CUDA_DEVICE_MAX_CONNECTIONS) and shares them among streams when there are more: a step in another stream
// then waits for a scan's copies. Two jobs and a policy's own stream fit, and keep the device as busy as
// four.
constexpr std::int64_t kDeviceJobs = 2, kFileJobs = 2;
using Clock = std::chrono::steady_clock;

// How long a thread without work stays awake. A caller that scans in a loop needs some 20 us between two
// scans, and to wake a thread takes 50.
constexpr std::chrono::microseconds kAwake{60};
// A piece takes some 100 us; a helper that needs the last of them is awaited awake for about that long.
constexpr int kSpins = 1000;

// Of this thread; of a helper none.
thread_local const Job* running_job = nullptr;

// Of one run_pieces(), on the stack of the thread that called it.
struct Range {
  Range(std::int64_t count, const std::function<void(std::int64_t)>& body) : pieces(count, body) {}

  Pieces pieces;
  std::atomic<int> helpers{0};  // changed under the mutex
};

class Background {
 public:
  void submit(JobKind kind, int device, std::uint64_t owner, std::shared_ptr<Job> job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool alone = waiting() == 0 && running() == 0;
    if (!alone) note_several_calls();
    const int queue = queue_of(kind, device);
    devices_ = std::max(devices_, queue - 1);
    if (waiting() >= ready()) start_thread();  // before the job is there: this may throw
    queues_[queue].waiting.push(owner, std::move(job));
    count_waiting();
    news_.fetch_add(1, std::memory_order_relaxed);
    if (low_idle_ > 0 && is_quiet()) return wake_.notify_all();  // those end
    wake_.notify_one();
    // A helper is awake by the time that the job wants it.
    if (alone && kind == JobKind::compute && threads() > 1) wake_.notify_one();
  }

  JobCounts counts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    JobCounts counts;
    counts.waiting = waiting();
    counts.running = running();
    return counts;
  }

  bool computes() const { return active_.load(std::memory_order_relaxed) > 0; }

  void run(std::int64_t pieces, const std::function<void(std::int64_t)>& body) {
    Range range(pieces, body);
    open(range);
    work(range, false);
    close(range);
    range.pieces.rethrow();
  }

 private:
  struct Jobs {
    FairQueue<std::shared_ptr<Job>> waiting;
    std::int64_t running = 0;
  };

  static constexpr int kCompute = 0, kFile = 1, kDevice = 2;
  static int queue_of(JobKind kind, int device) {
    if (kind == JobKind::device)
      return kDevice + static_cast<int>(static_cast<unsigned>(device) % kMostDevices);
    return kind == JobKind::compute ? kCompute : kFile;
  }
  static std::int64_t most_running(int queue) {
    return queue == kCompute ? threads() : queue == kFile ? kFileJobs : kDeviceJobs;
  }

  std::int64_t waiting() const {
    std::size_t count = 0;
    for (const Jobs& jobs : queues_) count += jobs.waiting.size();
    return static_cast<std::int64_t>(count);
  }

  // Of the waiting jobs those that may run now.
  std::int64_t can_start() const {
    std::int64_t count = 0;
    for (int i = 0; i < kQueues; ++i) {
      const std::int64_t free = most_running(i) - queues_[i].running;  // less than none after set_threads
      count += std::clamp<std::int64_t>(free, 0, static_cast<std::int64_t>(queues_[i].waiting.size()));
    }
    return count;
  }

  std::int64_t running() const {
    std::int64_t count = 0;
    for (const Jobs& jobs : queues_) count += jobs.running;
    return count;
  }

  // Called with the mutex. Threads that sleep and take work when they wake, and those that begin.
  std::int64_t ready() const { return starting_ + (is_quiet() ? idle_ - low_idle_ : idle_); }

  // Called with the mutex. More threads than can run at once would only sleep.
  void start_thread() {
    const std::int64_t ending = starting_ + idle_ - ready();
    if (started_ - ending >= threads() + kDeviceJobs * devices_ + kFileJobs) return;
    try {
      std::thread([this] { loop(); }).detach();
      ++started_, ++starting_;
    } catch (const std::exception& error) {  // no memory, or no thread: those that run take the work
      if (started_ == 0) {
        fail(ErrorKind::out_of_memory, "", "the system gives no thread for large calls: ", error.what());
      }
    }
  }

  // Of a thread of low priority, with the mutex: whether it ends here, because nothing asks for a low
  // priority any more, threads of the callers' are there, and one is ready for each job that may run. Whoever
  // submitted a job may have counted on this thread: it was not quiet then, and this one got no core since.
  // It starts none, which would have its own priority.
  bool ends() const { return low_ < started_ && is_quiet() && can_start() <= ready(); }

  void count_waiting() {
    waiting_compute_.store(static_cast<int>(queues_[kCompute].waiting.size()), std::memory_order_relaxed);
  }

  void loop() {
    begin_background_thread();
    std::unique_lock<std::mutex> lock(mutex_);
    --starting_;
    for (bool low = false;;) {
      if (has_low_priority() && !low) low = true, ++low_;
      if (low && ends()) break;
      if (run_job(lock) || help(lock)) continue;
      ++idle_, low_idle_ += low;
      if (!stay_awake(lock)) wake_.wait(lock);
      --idle_, low_idle_ -= low;
    }
    --low_, --started_;
    wake_.notify_one();  // what woke this thread is another's
  }

  // Whether a job or a range came in the meantime.
  bool stay_awake(std::unique_lock<std::mutex>& lock) {
    const unsigned seen = news_.load(std::memory_order_relaxed);
    lock.unlock();
    for (const auto end = Clock::now() + kAwake; Clock::now() < end;) {
      if (news_.load(std::memory_order_relaxed) != seen) break;
      sched_yield();
    }
    lock.lock();
    return news_.load(std::memory_order_relaxed) != seen;
  }

  // Queues take turns, so that jobs of one never keep another waiting.
  bool run_job(std::unique_lock<std::mutex>& lock) {
    for (int i = 0; i < kQueues; ++i) {
      const int queue = (turn_ + i) % kQueues;
      Jobs& jobs = queues_[queue];
      if (jobs.waiting.size() == 0 || jobs.running >= most_running(queue)) continue;
      turn_ = queue + 1;
      std::shared_ptr<Job> job = jobs.waiting.pop();
      count_waiting();
      ++jobs.running;
      const bool uses_a_core = queue < kDevice;
      if (uses_a_core) active_.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      if (!is_quiet()) lower_priority();
      running_job = job.get();
      job->run();
      running_job = nullptr;
      job.reset();
      if (uses_a_core) active_.fetch_sub(1, std::memory_order_relaxed);
      lock.lock();
      --jobs.running;
      return true;
    }
    return false;
  }

  bool help(std::unique_lock<std::mutex>& lock) {
    if (active_.load(std::memory_order_relaxed) >= threads()) return false;
    for (Range* range : ranges_) {
      if (range->pieces.exhausted()) continue;
      ++range->helpers;
      active_.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      work(*range, true);
      active_.fetch_sub(1, std::memory_order_relaxed);
      lock.lock();
      if (--range->helpers == 0) left_.notify_all();
      return true;
    }
    return false;
  }

  // A job may start, or more cores are used than there are.
  bool helper_should_leave() const {
    return waiting_compute_.load(std::memory_order_relaxed) > 0 ||
           active_.load(std::memory_order_relaxed) > threads();
  }

  void work(Range& range, bool helper) {
    for (;;) {
      if (helper && helper_should_leave()) return;
      if (!range.pieces.run_next()) return;
      give_way();
    }
  }

  void open(Range& range) {
    std::list<Range*> place{&range};
    const std::lock_guard<std::mutex> lock(mutex_);
    ranges_.splice(ranges_.end(), place);
    news_.fetch_add(1, std::memory_order_relaxed);
    const std::int64_t free = threads() - active_.load(std::memory_order_relaxed);
    const std::int64_t wanted = std::min(range.pieces.count() - 1, free), asleep = ready();
    for (std::int64_t i = 0; i < wanted; ++i) {
      if (i >= asleep) start_thread();
      wake_.notify_one();
    }
  }

  // Nobody joins any more; returns when those who did have left.
  void close(Range& range) {
    std::unique_lock<std::mutex> lock(mutex_);
    ranges_.remove(&range);
    lock.unlock();
    for (int i = 0; i < kSpins && range.helpers.load(std::memory_order_acquire) > 0; ++i) {
      std::this_thread::yield();
    }
    lock.lock();
    left_.wait(lock, [&] { return range.helpers == 0; });
  }

  std::mutex mutex_;
  std::condition_variable wake_, left_;
  Jobs queues_[kQueues];
  int devices_ = 1;  // whose jobs may run at once
  std::list<Range*> ranges_;
  int turn_ = 0;
  std::int64_t started_ = 0, starting_ = 0, idle_ = 0;  // starting_: have not looked for work yet
  std::int64_t low_ = 0, low_idle_ = 0;                 // those of them with a low priority
  std::atomic<int> active_{0};                          // threads that compute: jobs and helpers
  std::atomic<int> waiting_compute_{0};
  std::atomic<unsigned> news_{0};  // jobs and ranges so far; changed under the mutex
};

Background& background() {
  static Background* const instance = new Background;
  return *instance;
}

}  // namespace

void submit_job(JobKind kind, std::uint64_t owner, std::shared_ptr<Job> job, int device) {
  background().submit(kind, device, owner, std::move(job));
}
void stop_if_abandoned() {
  if (running_job != nullptr && running_job->is_abandoned()) throw Abandoned{};
}
JobCounts job_counts() {
  return background().counts();
}
bool background_computes() {
  return background().computes();
}
void run_pieces(std::int64_t pieces, const std::function<void(std::int64_t)>& body) {
  background().run(pieces, body);
}

}  // namespace exphil::core
