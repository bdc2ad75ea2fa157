#include "core/trunk/gated/initial_state.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace exphil::core::gated {

namespace {

std::uint32_t rotated(std::uint32_t x, int by) {
  return (x << by) | (x >> (32 - by));
}

// Threefry-2x32 with 20 rounds (Salmon et al. 2011), as Nx.Random and JAX use it.
RandomKey threefry(const RandomKey& key, RandomKey counter) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const std::uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDAu};
  std::uint32_t x = counter[0] + keys[0], y = counter[1] + keys[1];
  for (std::uint32_t i = 0; i < 5; ++i) {
    for (const int by : kRotations[i % 2]) {
      x += y;
      y = rotated(y, by) ^ x;
    }
    x += keys[(i + 1) % 3];
    y += keys[(i + 2) % 3] + i + 1;
  }
  return {x, y};
}

// `count` random words: those of the counters 0, 1, ..., of which the first half are the first words of the
// blocks and the second half the second ones. An odd count leaves one out.
std::vector<std::uint32_t> random_words(const RandomKey& key, std::size_t count) {
  const std::size_t half = (count + 1) / 2;
  std::vector<std::uint32_t> words(2 * half);
  for (std::size_t i = 0; i < half; ++i) {
    const auto second = static_cast<std::uint32_t>(half + i);
    const RandomKey made = threefry(key, {static_cast<std::uint32_t>(i), second < count ? second : 0});
    words[i] = made[0], words[half + i] = made[1];
  }
  words.resize(count);
  return words;
}

}  // namespace

std::vector<float> initial_state(const RandomKey& key, std::int64_t hidden) {
  const std::vector<std::uint32_t> keys = random_words(key, 4);
  const std::vector<std::uint32_t> words = random_words({keys[2], keys[3]}, static_cast<std::size_t>(hidden));
  const auto limit = static_cast<float>(std::sqrt(3.0 * (1.0 / (static_cast<double>(1 + hidden) / 2.0))));
  std::vector<float> state;
  for (const std::uint32_t word : words) {
    const std::uint32_t bits = (word >> 9) | 0x3F800000u;  // a float in [1, 2)
    float unit = 0;
    std::memcpy(&unit, &bits, sizeof(unit));
    const float scaled = (unit - 1.0f) * (limit - -limit);
    state.push_back(std::max(scaled + -limit, -limit));
  }
  return state;
}

}  // namespace exphil::core::gated
