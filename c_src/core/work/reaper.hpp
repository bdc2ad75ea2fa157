// A background thread that destroys the objects passed to it. BEAM resource destructors run on normal
// schedulers at unknown times, so they only enqueue; device memory and large blocks are freed here. Any
// thread may call. The thread starts with the first object and is joined when the library unloads; after
// that, reap() destroys the object on the calling thread.
#pragma once

#include <memory>

namespace exphil::core {

// Takes a mutex only for the push. Never throws.
void reap(std::shared_ptr<void> object) noexcept;

// Waits until every object passed before the call is destroyed. For tests and orderly shutdown.
void drain_reaper();

}  // namespace exphil::core
