// The operator of core/ssd in pieces: neighbouring channels of one head of one sequence, which know nothing
// of each other. Callers: scan.cpp and gradient.cpp. Plain values; any thread.
#pragma once

#include <algorithm>

#include "core/ssd/call.hpp"
#include "host/recurrence/head_kernels.hpp"

namespace exphil::host {

// A constant: the sums over the channels of a head are added up piece by piece.
inline constexpr std::int64_t kPieceChannels = 64;
// Steps between two calls of give_way(): some 20 us.
inline constexpr std::int64_t kWalkSteps = 16;

struct Piece {
  std::int64_t sequence = 0, head = 0, first = 0, channels = 0;  // first: of the head's channels
};

inline std::int64_t pieces_of_head(const core::SsdShape& s) {
  return (s.headdim + kPieceChannels - 1) / kPieceChannels;
}
// By number: {sequences, heads, pieces of a head}.
inline Piece piece_of(const core::SsdShape& s, std::int64_t number) {
  const std::int64_t each = pieces_of_head(s), first = number % each * kPieceChannels;
  return {number / each / s.heads, number / each % s.heads, first,
          std::min(kPieceChannels, s.headdim - first)};
}

// Where a piece is in the tensors of a call.
class PieceRows {
 public:
  PieceRows(const core::SsdCall& call, const Piece& piece) : call_(call), s_(call.shape), p_(piece) {}

  // `count` steps from `t` on as floats: the tensor itself where it has floats, else widened into `scratch`,
  // {count, scratch_width(id)}.
  MatrixRows read(core::SsdOperand id, std::int64_t t, std::int64_t count, float* scratch) const;
  // Where to write them: the tensor or, where it has halves or the call has none, `scratch`.
  MatrixRows target(core::SsdOperand id, std::int64_t t, float* scratch) const;
  // Stores what was written to `scratch` where the call has halves.
  void settle(core::SsdOperand id, std::int64_t t, std::int64_t count, const float* scratch) const;
  std::int64_t scratch_width(core::SsdOperand id) const { return padded(width(id)); }

  // The piece's part of a state, {channels, state}, or null.
  float* states(core::SsdOperand id) const;
  void active_dt(std::int64_t t, std::int64_t count, float* to) const;
  // The gradient of dt of a step from that of dt'.
  float dt_back(std::int64_t t, float gradient) const;

  // A recurrence of one head from step t on. dt: {seq}, the activated ones.
  HeadRows heads(const MatrixRows& x, const MatrixRows& b, const MatrixRows& c, const float* dt,
                 std::int64_t seq) const;

 private:
  std::int64_t width(core::SsdOperand id) const { return of_group(id) ? s_.state : p_.channels; }
  static bool of_group(core::SsdOperand id) { return id == core::SsdOperand::b || id == core::SsdOperand::c; }
  std::int64_t step(core::SsdOperand id) const;         // from a row to the next, in elements
  char* at(core::SsdOperand id, std::int64_t t) const;  // null where the call has none
  bool in_place(core::SsdOperand id) const {
    return s_.dtype == core::Dtype::f32 && call_.operands[id] != nullptr;
  }
  float dt_of(std::int64_t t) const;
  float bias() const;

  const core::SsdCall& call_;
  const core::SsdShape& s_;
  const Piece p_;
};

}  // namespace exphil::host
