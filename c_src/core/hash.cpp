// See hash.hpp.
#include "core/hash.hpp"

#include "core/work/background.hpp"

// Compiled in from its header: nothing to link, nothing to find at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace exphil::core {

static_assert(XXH_VERSION_NUMBER >= 800, "the values of XXH3 are fixed from xxHash 0.8.0 on");

std::uint64_t hash64(const void* data, std::size_t size) {
  constexpr std::int64_t kStretch = 1 << 17;  // some 10 us
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  in_stretches(static_cast<std::int64_t>(size), kStretch, [&](std::int64_t begin, std::int64_t end) {
    XXH3_64bits_update(&state, static_cast<const char*>(data) + begin, static_cast<std::size_t>(end - begin));
  });
  return XXH3_64bits_digest(&state);
}

std::string hex(std::uint64_t value) {
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits.push_back("0123456789abcdef"[value >> shift & 15]);
  return digits;
}

void HashedParts::add(const std::string& part) {
  text_ += std::to_string(part.size()) + ":" + part;
}

std::uint64_t HashedParts::hash64() const {
  return core::hash64(text_.data(), text_.size());
}

std::string HashedParts::hash128_hex() const {
  const XXH128_hash_t hash = XXH3_128bits(text_.data(), text_.size());
  return hex(hash.high64) + hex(hash.low64);
}

}  // namespace exphil::core
