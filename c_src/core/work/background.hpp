// Threads of the library's own for large calls, so that a scan, a load or a batch of windows holds none of
// the BEAM's schedulers. While frames are played they have a lower priority than the schedulers, and offer
// their core to them every 20 microseconds (give_way), so that the timers of the schedulers, and with them
// the frames, are on time. Beside each other large calls have the lower priority too. A call that has the
// machine for itself has the priority of its caller (background_thread.hpp).
//
// A thread takes a job where one may run; where none waits it helps a running job with the pieces of its
// parallel_for. Every function is safe from any thread. The threads start with the first job, and end where
// others replace them or with the process: what is global here is never destroyed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

namespace exphil::core {

// What a job mostly does. Each kind has a bound of its own on the jobs that run at once, and its own queue;
// of those that wait for a GPU each device has its own.
enum class JobKind {
  compute,  // uses this machine's cores: one job for each thread of core::threads()
  device,   // waits for a GPU: two overlap its copies and kernels; more only delay the frames on it
  file,     // reads a checkpoint: two
};

class Job {
 public:
  virtual ~Job() = default;
  virtual void run() noexcept = 0;
  // Whether nobody waits for the result any more. Asked by the thread that runs the job.
  virtual bool is_abandoned() const noexcept { return false; }
};

// Not an Error: its call has nobody to tell.
struct Abandoned {};

// Throws Abandoned in a job that is abandoned; elsewhere does nothing. Called some ten thousand times a
// second by whatever a file can keep busy for long, where to stop leaves nothing half done.
void stop_if_abandoned();

// Queues the job. Jobs of one owner in one queue run in their order, and owners take turns. device: the
// index, of a job that waits for one. Throws std::bad_alloc, or out_of_memory where the system gives no
// thread at all; nothing is queued then.
void submit_job(JobKind kind, std::uint64_t owner, std::shared_ptr<Job> job, int device = 0);

// Jobs that wait and jobs that run, of every kind. For tests and for the decision whether cores are idle.
struct JobCounts {
  std::int64_t waiting = 0, running = 0;
};
JobCounts job_counts();

// Whether compute jobs use cores now.
bool background_computes();

bool on_background_thread();

// parallel_for of a thread of these: calls body(piece) once for each piece of [0, pieces), in this thread and
// in others that have nothing else to do. Calls give_way() after each piece.
void run_pieces(std::int64_t pieces, const std::function<void(std::int64_t)>& body);

// A frame is about to be played or was played, on whatever backend.
void note_frame();

// Offers this thread's core to other threads, where this is a background thread that has not done so for 20
// microseconds; for 200 where no frame was played in the last 100 milliseconds. Lowers the thread's priority
// where frames are played or other large calls are there. Every loop of a large call calls it about that
// often. Costs one reading of the clock on a background thread, and next to nothing
// elsewhere. The caller holds no lock that a step takes.
//
// A scheduler of the BEAM without work spins before it sleeps: it yields its core a hundred times, and looks
// at its timers only afterwards. Each time Linux gives the core to a thread that computes, until the next
// tick, which may be 4 ms away; processes then wake tens of milliseconds late. Measured on 2 cores with 16
// agents at 60 FPS beside four loops of scans 32x60x512x16: 99% of the agents woke within 7.0 ms without
// give_way, within 5.5 ms where it was called every 100 us, and within 1.5 ms at 20 us; within 0.8 ms without
// scans. An offer that a spinning scheduler takes costs some 5 us.
void give_way();

// Calls body(begin, end) over [0, count) in order. On a background thread in stretches of at most `stretch`,
// with give_way() after each; elsewhere at once.
template <class Body>
void in_stretches(std::int64_t count, std::int64_t stretch, const Body& body) {
  if (!on_background_thread()) return body(std::int64_t{0}, count);
  for (std::int64_t begin = 0; begin < count; begin += stretch) {
    body(begin, std::min(count, begin + stretch));
    give_way();
  }
}

}  // namespace exphil::core
