// The library's threads: one oneTBB arena, apart from the BEAM's schedulers and bounded by the :threads
// option. Workers sleep when there is nothing to do, so an idle library costs the schedulers nothing.
#pragma once

#include <cstdint>
#include <functional>

namespace exphil::core {

// Takes effect for later calls. 0 means the default, the machine's cores, which is also the most: threads()
// answers what is used.
void set_threads(int threads);
int threads();

// Calls body(begin, end) over disjoint ranges that cover [0, count), each at least `grain` long except the
// last, and returns when all are done. Runs in the calling thread where the range or the thread count leaves
// one piece. The way the range is cut must never change a result. The first exception thrown by a body is
// rethrown here.
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace exphil::core
