#include "core/parallel.hpp"

#include <tbb/blocked_range.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <memory>
#include <mutex>

namespace exphil::core {

namespace {

// oneTBB's workers leave the arena and sleep some tens of microseconds after the last task, so they never
// compete with the BEAM's schedulers for longer than that.
struct Threads {
  std::mutex mutex;
  int count = 0;  // 0: not decided yet
  std::shared_ptr<tbb::task_arena> arena;
};

// Never destroyed: at exit a dirty scheduler may still be computing in the arena.
Threads& state() {
  static Threads* threads = new Threads;
  return *threads;
}

int machine_threads() {
  return std::max(1, tbb::info::default_concurrency());
}

std::shared_ptr<tbb::task_arena> arena(int* count) {
  Threads& shared = state();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  if (shared.count == 0) shared.count = machine_threads();
  if (!shared.arena) shared.arena = std::make_shared<tbb::task_arena>(shared.count);
  *count = shared.count;
  return shared.arena;
}

}  // namespace

void set_threads(int threads) {
  Threads& shared = state();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  // More than the machine has would only make oneTBB warn on stderr and ignore it.
  shared.count = threads > 0 ? std::min(threads, machine_threads()) : machine_threads();
  shared.arena.reset();  // calls under way keep the old one alive
}

int threads() {
  Threads& shared = state();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  return shared.count > 0 ? shared.count : machine_threads();
}

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  if (count <= grain || threads() == 1) return body(0, count);

  int workers = 1;
  const std::shared_ptr<tbb::task_arena> shared = arena(&workers);
  // Four pieces a thread even out unequal speeds; pieces are equal multiples of the grain.
  const std::int64_t most = std::min<std::int64_t>(count / grain, 4 * std::int64_t{workers});
  const std::int64_t per_piece = ((count + most - 1) / most + grain - 1) / grain * grain;
  const std::int64_t pieces = (count + per_piece - 1) / per_piece;
  shared->execute([&] {
    // Isolated: a thread that waits here for its last piece must not pick up another caller's long task.
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(
          tbb::blocked_range<std::int64_t>(0, pieces, 1),
          [&](const tbb::blocked_range<std::int64_t>& range) {
            for (std::int64_t piece = range.begin(); piece != range.end(); ++piece) {
              body(piece * per_piece, std::min(count, (piece + 1) * per_piece));
            }
          },
          tbb::simple_partitioner());
    });
  });
}

}  // namespace exphil::core
