// Large calls. One is copied into an environment of its own (its binaries are shared, not copied), runs on a
// background thread (core/work/background.hpp), and its result is sent to the caller as {reference, result}.
// ExPhil.Native.Queue waits for that message.
#pragma once

#include "core/work/background.hpp"
#include "nif/codec.hpp"

namespace exphil::nif {

using NifFunction = Term (*)(ErlNifEnv* env, int argc, const Term argv[]);

// Queues function(argv) for the calling process and returns :queued. device: see core::submit_job. The last
// argument is the caller's reference. A call whose caller has ended before its turn is not run. One that runs
// then stops where it reads a file (core::stop_if_abandoned); otherwise it is finished, and its result is
// freed. Throws std::bad_alloc or core::Error: nothing is queued then.
Term submit_call(ErlNifEnv* env, core::JobKind kind, int device, NifFunction function, int argc,
                 const Term argv[]);

}  // namespace exphil::nif
