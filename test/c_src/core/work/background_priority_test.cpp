// The priority of background threads: a job that has the machine for itself has that of its caller, and
// beside frames or other jobs it has a low one.
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/work/background.hpp"
#include "core/work/own_thread.hpp"
#include "core/work/parallel.hpp"
#include "support/catch.hpp"

namespace exphil::core {

namespace {

constexpr int kLow = 10;

// False under ThreadSanitizer, after one line on stderr: it keeps signals from threads that wait.
bool have_signals() {
#ifdef __SANITIZE_THREAD__
  std::fputs("skipped: a test that needs signals: ThreadSanitizer keeps them from threads that wait\n",
             stderr);
  return false;
#else
  return true;
#endif
}

int nice_of_this_thread() {
  return getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
}

class AwaitedWork final : public Job {
 public:
  explicit AwaitedWork(std::function<void()> work) : work_(std::move(work)) {}
  void run() noexcept override {
    work_();
    done_.set_value();
  }
  std::future<void> done() { return done_.get_future(); }

 private:
  std::function<void()> work_;
  std::promise<void> done_;
};

std::future<void> start(std::function<void()> work, JobKind kind = JobKind::compute) {
  auto job = std::make_shared<AwaitedWork>(std::move(work));
  std::future<void> done = job->done();
  submit_job(kind, 1, job);
  return done;
}

int nice_of_a_job() {
  int nice = 0;
  start([&] { nice = nice_of_this_thread(); }).wait();
  return nice;
}

// A thread tells of its job's end before it counts it, and a busy system may take its core in between.
void wait_for_running(std::int64_t count) {
  while (job_counts().running > count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Longer than frames and several jobs are remembered.
void wait_until_quiet() {
  wait_for_running(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
}

// Frames and jobs are remembered for 100 milliseconds, for which the system may well keep a thread off its
// core. So what depends on that is tried again, so often that only what never happens fails.
template <class Happens>
bool in_some_try(const Happens& happens) {
  for (int i = 0; i < 10'000; ++i) {
    if (happens()) return true;
  }
  return false;
}

// A look at the frames and jobs, which a thread takes once in 20 microseconds.
void give_way_soon() {
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  give_way();
}

std::vector<pid_t> background_threads() {
  std::vector<pid_t> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name == "exphil_job") threads.push_back(std::stoi(task.path().filename()));
  }
  return threads;
}

// Keeps the background threads off their cores, as a busy system may: each waits in a signal's handler, from
// the end of the constructor until release(), or for two seconds, where one of them has a lock that release()
// waits for.
class HeldThreads {
 public:
  HeldThreads() {
    held_ = 0, released_ = false;
    struct sigaction action {};
    action.sa_handler = [](int) {
      ++held_;
      const timespec millisecond{0, 1'000'000};
      for (int i = 0; i < 2000 && !released_; ++i) nanosleep(&millisecond, nullptr);
    };
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, &before_);
    std::vector<pid_t> sent;
    for (const pid_t thread : background_threads()) {
      if (syscall(SYS_tgkill, getpid(), thread, SIGUSR1) == 0) sent.push_back(thread);
    }
    // A thread that ends meanwhile takes no signal any more.
    const auto is_there = [](pid_t thread) { return syscall(SYS_tgkill, getpid(), thread, 0) == 0; };
    while (held_ < std::count_if(sent.begin(), sent.end(), is_there)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void release() { released_ = true; }
  ~HeldThreads() { sigaction(SIGUSR1, &before_, nullptr); }

 private:
  static inline std::atomic<int> held_{0};
  static inline std::atomic<bool> released_{false};
  struct sigaction before_ {};
};

}  // namespace

TEST_CASE("a job alone has its caller's priority, and a low one from the first frame on", "[background]") {
  const int own = nice_of_this_thread(), low = std::max(own, kLow);
  for (int round = 0; round < 3; ++round) {
    wait_until_quiet();
    int before = -1;
    bool lowered = false;
    start([&] {
      give_way_soon();
      before = nice_of_this_thread();
      lowered = in_some_try([&] {
        note_frame();
        give_way_soon();
        return nice_of_this_thread() == low;
      });
    }).wait();
    CHECK(before == own);
    CHECK(lowered);
    CHECK(in_some_try([&] {
      note_frame();
      return nice_of_a_job() == low;
    }));
  }
  CHECK(background_threads().size() <= 2 * static_cast<std::size_t>(threads() + 6));
}

TEST_CASE("jobs beside each other have a low priority", "[background]") {
  const int low = std::max(nice_of_this_thread(), kLow);
  CHECK(in_some_try([&] {
    wait_until_quiet();
    std::promise<void> second_is_there;
    int first = 0, second = 0;
    auto one = start([&] {
      second_is_there.get_future().wait();
      give_way_soon();
      first = nice_of_this_thread();
    });
    auto two = start([&] { second = nice_of_this_thread(); });
    second_is_there.set_value();
    one.wait(), two.wait();
    return first == low && second == low;
  }));
}

// Threads end between jobs that are longer than the time for which other jobs are remembered.
TEST_CASE("jobs that wait for long ones all run", "[background]") {
  for (int round = 0; round < 2; ++round) {
    std::vector<std::future<void>> all;
    for (int i = 0; i < 3 * threads(); ++i) {
      all.push_back(start([] { std::this_thread::sleep_for(std::chrono::milliseconds(120)); }));
    }
    for (std::future<void>& done : all) {
      REQUIRE(done.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    }
  }
}

// A job counts on a thread of low priority, which comes to its core when such threads end again.
TEST_CASE("a job has a thread where those that it woke end", "[background]") {
  if (!have_signals()) return;
  wait_until_quiet();
  // One thread keeps its caller's priority and its job, and all others get a low one.
  std::promise<void> begun, ends;
  auto long_one = start([&] { begun.set_value(), ends.get_future().wait(); });
  begun.get_future().wait();
  std::vector<JobKind> kinds(static_cast<std::size_t>(threads() - 1), JobKind::compute);
  kinds.insert(kinds.end(), {JobKind::file, JobKind::file, JobKind::device, JobKind::device});
  const int low = std::max(nice_of_this_thread(), kLow);
  std::atomic<std::size_t> there{0}, lowered{0};
  std::vector<std::future<void>> others;
  for (const JobKind kind : kinds) {
    others.push_back(start(
        [&] {
          for (++there; there < kinds.size();) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          lowered += in_some_try([&] {
            note_frame();
            give_way_soon();
            return nice_of_this_thread() == low;
          });
        },
        kind));
  }
  for (std::future<void>& done : others) done.wait();
  CHECK(lowered == kinds.size());
  wait_for_running(1);

  HeldThreads held;
  note_frame();
  auto job = start([] {}, JobKind::file);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));  // longer than a frame is remembered
  held.release();
  CHECK(job.wait_for(std::chrono::minutes(1)) == std::future_status::ready);
  ends.set_value();
  long_one.wait();
  job.wait();
}

TEST_CASE("the helpers of a job alone have its priority", "[background]") {
  const int own = nice_of_this_thread();
  wait_until_quiet();
  std::atomic<int> others{0};
  start([&] {
    parallel_for(64, 1, [&](std::int64_t, std::int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      others += nice_of_this_thread() != own;
    });
  }).wait();
  CHECK(others == 0);
}

TEST_CASE("a job runs on every core of the process, whatever the thread is bound to that started its thread",
          "[background]") {
  cpu_set_t all, of_job;
  CPU_ZERO(&of_job);
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  start([] { note_frame(); }).wait();
  nice_of_a_job();  // a thread of low priority now, so that the next job has another
  wait_until_quiet();
  int cores = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    start([&] { sched_getaffinity(0, sizeof of_job, &of_job); }).wait();
    cores = process_cores();
  }).join();
  CHECK(cores == CPU_COUNT(&all));
  CHECK(CPU_EQUAL(&of_job, &all));
}

}  // namespace exphil::core
