// Deterministic random numbers and the error measure of every numeric test.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace exphil::test {

// SplitMix64: the same numbers on every machine and with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float uniform(float low, float high) {
    const double unit = static_cast<double>(bits() >> 11) * 0x1p-53;
    return static_cast<float>(low + (static_cast<double>(high) - low) * unit);
  }
  std::vector<float> vector(std::size_t count, float low, float high) {
    std::vector<float> values(count);
    for (float& value : values) value = uniform(low, high);
    return values;
  }

 private:
  std::uint64_t state_;
};

// ||out - reference|| / ||reference||; infinite where out is not finite, ||out|| where the reference is zero.
template <class Out, class Reference>
double relative_error(const Out* out, const Reference* reference, std::size_t count) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double delta = static_cast<double>(out[i]) - static_cast<double>(reference[i]);
    if (!std::isfinite(delta)) return std::numeric_limits<double>::infinity();
    difference += delta * delta;
    size += static_cast<double>(reference[i]) * static_cast<double>(reference[i]);
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

template <class Out, class Reference>
double relative_error(const std::vector<Out>& out, const std::vector<Reference>& reference) {
  if (out.size() != reference.size()) return std::numeric_limits<double>::infinity();
  return relative_error(out.data(), reference.data(), out.size());
}

}  // namespace exphil::test
