// The primitives of kernels/associative/device.cuh on the emulated grid (grid.hpp).
#pragma once

#include <cstring>

#include "support/grid.hpp"

#define EXPHIL_UNROLL
#define EXPHIL_UNROLL_NOT

namespace exphil::associative {

using std::memcpy;

inline void sync_block() {
  grid::sync_block();
}
inline void sync_warps(unsigned) {
  grid::sync_block();
}
inline void sync_warp() {
  grid::sync_warp();
}
inline std::uint32_t from_lane(std::uint32_t word, int lane) {
  return grid::from_lane(word, lane);
}
inline std::uint32_t lane_above(std::uint32_t word, int distance) {
  const int lane = static_cast<int>(threadIdx.x) - distance;
  return from_lane(word, lane < 0 ? static_cast<int>(threadIdx.x) : lane);
}

inline unsigned peek(const unsigned* word) {
  return *word;
}
inline void poke(unsigned* word, unsigned value) {
  *word = value;
}
inline void wait_more() {
  grid::machine.deadlock = true;
  grid::yield(grid::Waiting::done);
}
inline long long forget(long long value) {
  return value;
}
inline long long stepped(long long address, long long bytes) {
  return address + bytes;
}

inline float half_to_float(unsigned short half) {
  return core::f16_to_f32(half);
}
inline unsigned short float_to_half(float value) {
  return core::f32_to_f16(value);
}
inline unsigned float_bits(float value) {
  return core::f32_bits(value);
}
inline float bits_float(unsigned bits) {
  return core::f32_from_bits(bits);
}

}  // namespace exphil::associative
