// The wait of policy_step_armed, for a fake of that kernel: on a thread of its own, in host memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "kernels/policy/arguments.cuh"

// Waits for the first `count` values of the observation of launch `number`. Returns false where the launch
// was cancelled or has waited for its full time; it then also writes its number to `ended`, where the host
// reads it.
inline bool await_observation(const exphil::policy::ArmedArguments& armed, unsigned number, int count,
                              float* obs) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(armed.nanoseconds);
  const auto arrived = [&] {
    for (int i = 0; i < count; ++i) {
      const unsigned long long word = __atomic_load_n(armed.obs + i, __ATOMIC_ACQUIRE);
      if (word >> 32 != number) return false;
      const auto bits = static_cast<std::uint32_t>(word);
      std::memcpy(obs + i, &bits, sizeof(bits));
    }
    return true;
  };
  while (!arrived()) {
    const auto cancelled = static_cast<unsigned>(__atomic_load_n(armed.cancelled, __ATOMIC_ACQUIRE));
    if (static_cast<int>(cancelled - number) >= 0 || std::chrono::steady_clock::now() > end) {
      __atomic_store_n(armed.ended, static_cast<unsigned long long>(number), __ATOMIC_RELEASE);
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}
