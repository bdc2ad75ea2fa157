#include "core/work/parallel.hpp"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "core/work/background.hpp"
#include "core/work/own_thread.hpp"
#include "core/work/pieces.hpp"

namespace exphil::core {

namespace {

// Pieces for each thread: a few even out unequal speeds. In the background more, because a thread offers its
// core after each.
constexpr std::int64_t kPieces = 4, kBackgroundPieces = 16;

// oneTBB's workers leave an arena and sleep some tens of microseconds after the last task, so they never
// compete with the BEAM's schedulers for longer than that.
struct Threads {
  std::mutex mutex;
  std::shared_ptr<tbb::task_arena> direct, steps;
};

// Never destroyed: at exit a dirty scheduler may still be computing in an arena.
Threads& state() {
  static Threads* threads = new Threads;
  return *threads;
}

std::atomic<int> chosen_threads{0};  // 0: the machine's
thread_local bool in_step = false, alone = false;

// Not tbb::info::default_concurrency(): where the first call of that has no memory, every later one waits for
// ever.
int machine_threads() {
  static const int count = process_cores();
  return count;
}

// Called in each piece: in the thread that calls parallel_for, or in a worker of oneTBB.
void begin_worker(std::thread::id caller) {
  thread_local bool begun = false;
  if (begun) return;
  begun = true;
  if (std::this_thread::get_id() != caller) begin_own_thread("exphil_helper");
}

// Complete, or not at all: where an arena finds no memory at its first use, every later use waits for ever.
std::shared_ptr<tbb::task_arena> make_arena(bool of_steps) {
  const auto priority = of_steps ? tbb::task_arena::priority::high : tbb::task_arena::priority::normal;
  auto arena = std::make_shared<tbb::task_arena>(threads(), 1u, priority);
  arena->initialize();
  return arena;
}

// The arena of this thread's call.
std::shared_ptr<tbb::task_arena> arena() {
  Threads& shared = state();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  std::shared_ptr<tbb::task_arena>& chosen = in_step ? shared.steps : shared.direct;
  if (!chosen) chosen = make_arena(in_step);
  return chosen;
}

// What oneTBB throws leaves from here; no piece of it runs any more then.
void run_in_arena(Pieces& pieces) {
  const std::thread::id caller = std::this_thread::get_id();
  arena()->execute([&] {
    // Isolated: a thread that waits here for its last piece must not pick up another caller's long task.
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(
          tbb::blocked_range<std::int64_t>(0, pieces.count(), 1),
          [&](const tbb::blocked_range<std::int64_t>& range) {
            begin_worker(caller);
            for (std::int64_t i = range.begin(); i != range.end(); ++i) pieces.run_next();
          },
          tbb::simple_partitioner());
    });
  });
}

}  // namespace

void set_threads(int threads) {
  Threads& shared = state();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  // More than the machine has would only make oneTBB warn on stderr and ignore it.
  chosen_threads = std::min(std::max(threads, 0), machine_threads());
  shared.direct.reset();  // calls under way keep the old ones alive
  shared.steps.reset();
  if (core::threads() == 1) return;
  try {  // now, when there is memory
    shared.direct = make_arena(false);
    shared.steps = make_arena(true);
  } catch (...) {  // the next call tries again
  }
}

int threads() {
  const int chosen = chosen_threads.load(std::memory_order_relaxed);
  return chosen > 0 ? chosen : machine_threads();
}

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const bool background = on_background_thread();
  if (count <= grain || alone || (threads() == 1 && !background)) return body(0, count);

  // Pieces are equal multiples of the grain.
  const std::int64_t wanted = (background ? kBackgroundPieces : kPieces) * threads();
  const std::int64_t most = std::min(count / grain, wanted);
  const std::int64_t per_piece = ((count + most - 1) / most + grain - 1) / grain * grain;
  const std::int64_t pieces = (count + per_piece - 1) / per_piece;
  const auto call = [&](std::int64_t index) {
    body(index * per_piece, std::min(count, (index + 1) * per_piece));
  };
  const std::function<void(std::int64_t)> piece = std::cref(call);  // which allocates nothing
  if (background) return run_pieces(pieces, piece);
  Pieces shared(pieces, piece);
  try {
    run_in_arena(shared);
  } catch (...) {  // oneTBB gets no memory or no thread: this one takes what is left
  }
  while (shared.run_next()) {
  }
  shared.rethrow();
}

void wake_helpers(int count) noexcept {
  if (threads() == 1) return;
  try {
    const auto shared = arena();
    const std::thread::id caller = std::this_thread::get_id();
    for (int i = 0; i < count; ++i) shared->enqueue([caller] { begin_worker(caller); });
  } catch (...) {
  }
}

StepScope::StepScope() : counts_(!on_background_thread() && !in_step) {
  if (counts_) in_step = true;
}

StepScope::~StepScope() {
  if (counts_) in_step = false;
}

void compute_alone() noexcept {
  alone = true;
}

}  // namespace exphil::core
