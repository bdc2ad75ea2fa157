// Copies to page-locked memory that a device will read, past the processor's caches: a core writes to lines
// that a device has just read at a fraction of its speed, because it first reads them back. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace exphil::cuda {

// Orders stores past the caches before later ones of this thread.
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// `to` and `from` do not overlap. Other threads see the bytes after an ordinary lock of a mutex.
inline void stream_copy(void* to, const void* from, std::size_t bytes) {
#if defined(__SSE2__)
  constexpr std::size_t kWidth = sizeof(__m128i), kLine = 4 * kWidth;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const std::size_t first = (kWidth - reinterpret_cast<std::uintptr_t>(out) % kWidth) % kWidth;
  if (bytes < first + kLine) {
    std::memcpy(out, in, bytes);
    return;
  }
  std::memcpy(out, in, first);
  std::size_t at = first;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* const source = reinterpret_cast<const __m128i*>(in + at);
    auto* const target = reinterpret_cast<__m128i*>(out + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
                  c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a), _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c), _mm_stream_si128(target + 3, d);
  }
  stream_fence();
  std::memcpy(out + at, in + at, bytes - at);
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace exphil::cuda
