#include "core/work/background.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/work/fair_queue.hpp"
#include "core/work/parallel.hpp"
#include "support/catch.hpp"
#include "support/waiting.hpp"

namespace {

thread_local int cores_offered = 0;

}  // namespace

// In the place of the C library's, for every call in this process.
extern "C" int sched_yield() noexcept {
  ++cores_offered;
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace exphil::core {

namespace {

class Work final : public Job {
 public:
  explicit Work(std::function<void()> work) : work_(std::move(work)) {}
  void run() noexcept override { work_(); }

 private:
  std::function<void()> work_;
};

using test::eventually;
using test::Gate;

bool all_done() {
  const JobCounts counts = job_counts();
  return counts.waiting == 0 && counts.running == 0;
}

void in_background_and_wait(const std::function<void()>& work) {
  Gate done;
  submit_job(JobKind::compute, 1, std::make_shared<Work>([&] {
               work();
               done.open();
             }));
  done.wait();
}

}  // namespace

TEST_CASE("a fair queue serves owners in turn and each owner's items in order", "[background]") {
  FairQueue<std::string> queue;
  for (const char* item : {"a1", "a2", "a3"}) queue.push(1, item);
  for (const char* item : {"b1", "b2"}) queue.push(2, item);
  queue.push(3, "c1");
  CHECK(queue.size() == 6);
  std::string order;
  while (queue.size() > 0) order += queue.pop() + " ";
  CHECK(order == "a1 b1 c1 a2 b2 a3 ");
}

TEST_CASE("an owner whose last item is taken begins again at the end", "[background]") {
  FairQueue<int> queue;
  queue.push(1, 10);
  queue.push(2, 20);
  CHECK(queue.pop() == 10);
  queue.push(1, 11);
  CHECK(queue.pop() == 20);
  CHECK(queue.pop() == 11);
  CHECK(queue.size() == 0);
}

TEST_CASE("every job runs once, on a background thread, beside others of its kind", "[background]") {
  for (const JobKind kind : {JobKind::compute, JobKind::device, JobKind::file}) {
    std::atomic<int> runs{0}, elsewhere{0}, together{0}, most{0};
    for (int i = 0; i < 200; ++i) {
      submit_job(kind, static_cast<std::uint64_t>(i % 7), std::make_shared<Work>([&] {
                   const int now = ++together;
                   for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
                   }
                   if (!on_background_thread()) ++elsewhere;
                   ++runs;
                   --together;
                 }));
    }
    REQUIRE(eventually([&] { return runs == 200; }));
    CHECK(elsewhere == 0);
    CHECK(most <= (kind == JobKind::compute ? threads() : kind == JobKind::device ? 4 : 2));
  }
  CHECK_FALSE(on_background_thread());
  CHECK(eventually(all_done));
}

TEST_CASE("jobs that wait for a device or a file do not delay those that compute", "[background]") {
  Gate gate;
  for (int i = 0; i < 6; ++i) {
    submit_job(JobKind::device, 1, std::make_shared<Work>([&] { gate.wait(); }));
    submit_job(JobKind::file, 1, std::make_shared<Work>([&] { gate.wait(); }));
  }
  std::atomic<bool> ran{false};
  in_background_and_wait([&] { ran = true; });
  CHECK(ran);
  gate.open();
  REQUIRE(eventually(all_done));
}

TEST_CASE("jobs of one device do not delay those of another", "[background]") {
  Gate gate;
  std::atomic<int> here{0}, there{0};
  for (int i = 0; i < 3; ++i) {
    submit_job(JobKind::device, 1, std::make_shared<Work>([&] { ++here, gate.wait(); }), 0);
  }
  REQUIRE(eventually([&] { return here == 2; }));
  for (int i = 0; i < 3; ++i) {
    submit_job(JobKind::device, 1, std::make_shared<Work>([&] { ++there, gate.wait(); }), 1);
  }
  REQUIRE(eventually([&] { return there == 2; }));
  CHECK(here == 2);  // two of each device at once
  CHECK(job_counts().waiting == 2);
  gate.open();
  REQUIRE(eventually(all_done));
  CHECK(here + there == 6);
}

TEST_CASE("parallel_for of a background thread covers its range, nests and passes exceptions on",
          "[background]") {
  std::atomic<std::int64_t> sum{0}, nested{0};
  bool thrown = false;
  in_background_and_wait([&] {
    for (const std::int64_t count : {1, 2, 63, 1000, 4099}) {
      parallel_for(count, 3, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    }
    parallel_for(16, 1, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) {
        parallel_for(8, 1, [&](std::int64_t from, std::int64_t to) { nested += to - from; });
      }
    });
    try {
      parallel_for(1000, 1, [](std::int64_t begin, std::int64_t) {
        if (begin > 300) throw std::out_of_range("x");
      });
    } catch (const std::out_of_range&) {
      thrown = true;
    }
  });
  CHECK(sum == 1 + 2 + 63 + 1000 + 4099);
  CHECK(nested == 16 * 8);
  CHECK(thrown);
}

TEST_CASE("many jobs that spread over the threads all end", "[background]") {
  std::atomic<std::int64_t> total{0}, ended{0};
  for (int i = 0; i < 100; ++i) {
    submit_job(JobKind::compute, static_cast<std::uint64_t>(i % 5), std::make_shared<Work>([&] {
                 parallel_for(64, 1, [&](std::int64_t begin, std::int64_t end) { total += end - begin; });
                 ++ended;
               }));
  }
  REQUIRE(eventually([&] { return ended == 100; }));
  CHECK(total == 6400);
}

// Counts the offers of this process; what the system makes of one is not the library's.
TEST_CASE(
    "beside frames a background thread offers its core at each look that is 20 microseconds after the last",
    "[background]") {
  int offered = 0, looks = 0;
  in_background_and_wait([&] {
    for (; looks < 100; ++looks) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      note_frame();
      const int before = cores_offered;
      give_way();
      offered += cores_offered - before;
    }
  });
  CHECK(offered == looks);
}

TEST_CASE("a thread that is not the library's own offers its core to nobody", "[background]") {
  const int before = cores_offered;
  note_frame();
  give_way();
  CHECK(cores_offered == before);
}

TEST_CASE("stretches cover their range in order, in one call where no core is offered", "[background]") {
  const auto cut = [] {
    std::vector<std::int64_t> ends;
    in_stretches(20, 8, [&](std::int64_t begin, std::int64_t end) {
      CHECK(begin == (ends.empty() ? 0 : ends.back()));
      ends.push_back(end);
    });
    return ends;
  };
  CHECK(cut() == std::vector<std::int64_t>{20});
  std::vector<std::int64_t> in_background;
  in_background_and_wait([&] { in_background = cut(); });
  CHECK(in_background == std::vector<std::int64_t>{8, 16, 20});
}

}  // namespace exphil::core
