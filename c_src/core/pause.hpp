// For loops that poll memory: tells the processor that this thread only waits.
#pragma once

namespace exphil::core {

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace exphil::core
