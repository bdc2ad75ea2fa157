// For loops that poll memory.
#pragma once

#include <thread>

namespace exphil::core {

// Tells the processor that this thread only waits.

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when done() does, which another thread brings about in a few microseconds while it has a core.
// Keeps this thread's core for about 50 microseconds, then offers it: the other thread may need it.
template <class Done>
void wait_awake(const Done& done) {
  for (int spins = 0; !done(); ++spins) {
    if (spins < 2000) {
      pause_briefly();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace exphil::core
