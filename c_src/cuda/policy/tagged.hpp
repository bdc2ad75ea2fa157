// Outputs that a kernel writes to host memory while the host polls: each value's bits in an 8-byte word,
// below the number of its launch. A value is seen only together with its number, so no flag or event is
// needed. Used by cuda/policy/fused.cpp and window.cpp; any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/error.hpp"
#include "cuda/device/context.hpp"
#include "cuda/device/doorbell.hpp"
#include "cuda/policy/wait.hpp"

namespace exphil::cuda {

class TaggedOutputs {
 public:
  TaggedOutputs() = default;
  TaggedOutputs(Context& context, std::size_t count)
      : words_(context.pinned_pool().allocate(count * sizeof(std::uint64_t))) {
    std::memset(words_.data(), 0, words_.bytes());  // no launch has number 0
  }

  unsigned long long* device_words() const { return as_pointer<unsigned long long>(words_.device_address()); }

  // Whether the first `count` values of launch `number` came within so many microseconds of polling. They are
  // in `out` then.
  bool poll(unsigned number, std::int64_t count, std::int64_t microseconds, float* out) const {
    return poll(number, count, microseconds, out, [] { return false; });
  }
  // The same, but gives up where `hopeless` returns true.
  template <class Hopeless>
  bool poll(unsigned number, std::int64_t count, std::int64_t microseconds, float* out,
            Hopeless hopeless) const {
    std::int64_t next = 0;
    const auto arrived = [&] {
      for (; next < count; ++next) {
        // The device writes during the read: an 8-byte load that is never torn nor reordered.
        const std::uint64_t word = __atomic_load_n(words_.as<const std::uint64_t>() + next, __ATOMIC_ACQUIRE);
        if (static_cast<unsigned>(word >> 32) != number) return false;
        const auto bits = static_cast<std::uint32_t>(word);
        std::memcpy(out + next, &bits, sizeof(float));
      }
      return true;
    };
    return spin_until([&] { return arrived() || hopeless(); }, microseconds) && next == count;
  }

  // The first `count` values of launch `number` on `stream`: polls, then sleeps. Throws the work's error, or
  // internal where the launch ended without them.
  void collect(Context& context, CUstream stream, unsigned number, std::int64_t count,
               std::int64_t spin_microseconds, float* out) const {
    if (poll(number, count, spin_microseconds, out)) return;
    context.armed().cancel();
    context.check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (!poll(number, count, 0, out)) {
      core::fail(core::ErrorKind::internal, "", "a policy's kernel ended without all of its outputs");
    }
  }

 private:
  PinnedBuffer words_;
};

}  // namespace exphil::cuda
