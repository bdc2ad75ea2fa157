// Converts a policy's weights (cuda/policy/fold.hpp) to the layout of its kernels, on the host, at load, and
// its states: padded with zeros. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "core/policy/config.hpp"
#include "cuda/policy/dims.hpp"

namespace exphil::cuda {

// How the kernels have what a convolution or a scan has for each channel, its weights as its state: taps with
// the channel last, states with the channel first. Of a cell, which has no weights: its states as channels,
// each of all units. Of a recurrence over heads and of a gate: a channel is a value of a head. Of a rotation:
// a head. Cumulative angles and delays keep their states as they are.
struct ChannelTable {
  enum class Of { weights, state };
  ChannelTable(const policy::Network& n, const policy::Phase& phase, Of of);
  std::int64_t channels, each;  // each: of the weights, and of a state with the channel first
  bool channel_last;
  // Where value `value` of a channel is among those of so many channels.
  std::int64_t at(std::int64_t channel, std::int64_t value, std::int64_t of) const {
    return channel_last ? value * of + channel : channel * each + value;
  }
};

// Whether a kind of phase has weights that are none of a matrix.
inline bool has_channels(policy::Kind kind) {
  using policy::Kind;
  return kind != Kind::product && kind != Kind::mean && kind != Kind::cell && kind != Kind::angle &&
         kind != Kind::delay;
}

// For policy_step: the shares of `team` blocks, one after another (policy::TeamLayout). Writes all
// team_bytes() of `to`, with zeros where no weight is.
std::size_t team_bytes(const PolicyDims& dims, int team);
void pack_team(const core::PolicyWeights& weights, const PolicyDims& dims, int team, std::byte* to);

// For the kernels over many rows: the offset of each part in one buffer, aligned to 256 bytes. Matrices are
// groups [k / 4][policy::product_columns(outputs)].
struct RowLayout {
  using Part = policy::Part<float>;
  // A product has the first four. scale and sums are for all columns. A short product has groups [k /
  // 4][rows], and its scales follow the bias at once (policy::ShortMatrix).
  struct Phase {
    policy::MatrixPart weights;
    Part bias, scale, sums;
    // Of a convolution {taps, channels} and the bias, of a scan and of a recurrence over heads A and D, of a
    // gate the weight of its norm, of a rotation its bias and the weight of its norm; the factors of ranks
    // are in place of A.
    Part channels, values;
  };
  using Block = std::vector<Phase>;  // as the phases of the lowered block
  Block input;
  std::vector<Block> layers;
  Block output;
  Part initial;  // a new agent's state; none where that is zeros
  std::size_t bytes = 0;
};
RowLayout row_layout(const PolicyDims& dims);
// Writes all layout.bytes of `to`, with zeros where no weight is.
void pack_rows(const core::PolicyWeights& weights, const PolicyDims& dims, const RowLayout& layout,
               std::byte* to);

// A state between the public layout (core/policy/policy.hpp) and the kernels' (policy::Network): channels and
// states are padded with zeros, and conv has the channel last.
void pack_state(const PolicyDims& dims, const float* values, float* packed);
void unpack_state(const PolicyDims& dims, const float* packed, float* values);
// That of a new agent, packed; empty: zeros.
std::vector<float> initial_state(const PolicyDims& dims);

}  // namespace exphil::cuda
