// Where a phase with heads and ranks finds what one of its values needs. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "core/policy/network.hpp"

namespace exphil::core {

// Of a rank and a head of a rotation: what it reads, and the elements of a pair.
struct RotatedRow {
  RotatedRow(const Rotation& p, std::int64_t row)
      : head(row % p.heads),
        in_at((row / p.heads * p.groups + head / (p.heads / p.groups)) * p.size()),
        bias_at((head * p.ranks + row / p.heads) * p.size()),
        turn_at(head * p.angles() * 2),
        step(p.halves ? 1 : 2),
        apart(p.halves ? p.size() / 2 : 1) {}
  std::int64_t head, in_at, bias_at, turn_at, step, apart;
  std::int64_t first_of(std::int64_t pair) const { return pair * step; }
  std::int64_t second_of(std::int64_t pair) const { return pair * step + apart; }
};

// Where the weight of value i of the ranks is.
inline std::int64_t scale_index(const RankScale& p, std::int64_t i) {
  const std::int64_t channels = p.channels(), head = i / channels % p.heads;
  return (head * p.ranks + i / channels / p.heads) * channels + i % channels;
}

}  // namespace exphil::core
