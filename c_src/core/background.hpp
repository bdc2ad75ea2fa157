// Threads of the library's own for large calls, so that a scan, a load or a batch of windows holds none of
// the BEAM's schedulers. They have a lower priority than the schedulers (kNice), so that the system gives
// them a core only where no frame wants it.
//
// A thread takes a job where one may run; where none waits it helps a running job with the pieces of its
// parallel_for. Every function is safe from any thread. The threads start with the first job and end with the
// process: nothing here is ever destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace exphil::core {

// What a job mostly does. Each kind has a bound of its own on the jobs that run at once, and its own queue.
enum class JobKind {
  compute,  // uses this machine's cores: one job for each thread of core::threads()
  device,   // waits for a GPU: four overlap its copies and kernels; more only delay the frames on it
  file,     // reads a checkpoint: two
};

class Job {
 public:
  virtual ~Job() = default;
  virtual void run() noexcept = 0;
};

// Queues the job. Jobs of one owner run in their order, and owners take turns. Throws std::bad_alloc, or
// out_of_memory where the system gives no thread at all; nothing is queued then.
void submit_job(JobKind kind, std::uint64_t owner, std::shared_ptr<Job> job);

// Takes a job back that has not started. False where it runs, has run, or was never queued.
bool drop_job(JobKind kind, std::uint64_t owner, const Job* job);

// Jobs that wait and jobs that run, of every kind. For tests and for the decision whether cores are idle.
struct JobCounts {
  std::int64_t waiting = 0, running = 0;
};
JobCounts job_counts();

// Whether compute jobs use cores now.
bool background_computes();

bool on_background_thread();

// parallel_for of a thread of these: calls body(piece) once for each piece of [0, pieces), in this thread and
// in others that have nothing else to do. Between two pieces it gives way to steps (parallel.hpp).
void run_pieces(std::int64_t pieces, const std::function<void(std::int64_t)>& body);

// One nap between two pieces of work, where steps under way and the background together need more cores than
// there are. Returns at once elsewhere, and on every other thread.
void give_way_to_steps();

}  // namespace exphil::core
