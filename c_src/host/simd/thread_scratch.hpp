// Scratch memory of the calling thread, kept between calls and freed with the thread. A thread_local object
// with a destructor would abort the process where the system has no memory to register it
// (__cxa_thread_atexit); this throws instead. Used by the scan, its gradient and that of a policy.
#pragma once

#include <cstdint>

#include "host/simd/aligned.hpp"

namespace exphil::host {

// The use of the memory. A thread may hold one block for each use.
enum class Scratch { scan, gradient, product };
inline constexpr int kScratchUses = 3;

// At least `floats` floats, uninitialised, until the thread's next call for the same use. Throws
// out_of_memory or bad_alloc.
float* thread_scratch(Scratch use, std::int64_t floats);

// The same up to a size that a thread may keep; beyond it `large`, which grows and ends with the call.
float* thread_scratch(Scratch use, std::int64_t floats, AlignedBuffer* large);

}  // namespace exphil::host
