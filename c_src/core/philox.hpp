// Random numbers from a counter and a key, so that a number depends on what it is for and not on how many
// came before it: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). The
// same bits on every machine. Used by session/play, training/loss and trunk/. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>

namespace exphil::core {

// Four words.
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0], p1 = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  return c;
}

// From 0 to below 1, in steps of 2^-24.
inline float uniform_of(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Number `index` of the stream.
inline std::uint32_t word_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto words = philox({static_cast<std::uint32_t>(index / 4), static_cast<std::uint32_t>(index >> 34),
                             static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                            seed);
  return words[index % 4];
}
inline float uniform_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return uniform_of(word_at(seed, stream, index));
}

}  // namespace exphil::core
