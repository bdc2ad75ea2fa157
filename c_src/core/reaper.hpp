// One background thread that destroys what is handed to it. BEAM resource destructors run on normal
// schedulers at unknown times, so they only enqueue; freeing device memory or large blocks happens here.
// Any thread may call. The thread starts with the first object and is joined when the library unloads; after
// that, objects are destroyed where they are handed over.
#pragma once

#include <memory>

namespace exphil::core {

// Takes a mutex for the length of a push, nothing more. Never throws.
void reap(std::shared_ptr<void> object) noexcept;

// Waits until everything handed over before the call is destroyed. For tests and orderly shutdown.
void drain_reaper();

}  // namespace exphil::core
