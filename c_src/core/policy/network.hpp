// What a policy computes for a frame, whatever its trunk: an input block, layers and an output block, each a
// list of phases over named vectors. A trunk (core/trunk) makes the list from a checkpoint; every executor
// (the reference, the host, the GPU's kernels, the gradient) is a loop over it. What follows from the list is
// found here and never written by hand: which phases need a frame alone, which feed a state, how much work
// there is.
//
// Rules of a network, which check() enforces:
// - Blocks pass on one vector, `hidden`, or its first values. A layer reads it, and adds to it or replaces it
//   in its last phase, a product or a copy. All other vectors of a block are written in it before they are
//   read, each by one phase.
// - All layers have the same phases, with weights and states of their own. The first may read more of hidden
//   than the others.
// - A state part belongs to one phase. A recall of the same block may read it.
//
// Plain data and pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kernels/common/cells.cuh"
#include "kernels/common/heads.cuh"

namespace exphil::core {

// Places in Network::vectors, weights and states. kNone: there is none.
using VectorId = int;
using WeightId = int;
using StateId = int;
inline constexpr int kNone = -1;

struct Vector {
  std::string name;
  std::int64_t size = 0;
};

// Values [first, first + size) of a vector; of none where `vector` is kNone.
struct Span {
  VectorId vector = kNone;
  std::int64_t first = 0, size = 0;
  explicit operator bool() const { return vector != kNone; }
};
inline bool operator==(const Span& p, const Span& q) {
  return p.vector == q.vector && p.first == q.first && p.size == q.size;
}

// A tensor of the policy, row-major {rows, columns}; a vector has one row. Absent weights have no id.
struct Weight {
  std::string name;  // for errors: "layer 0's in_proj"
  std::int64_t rows = 1, columns = 0;
  // The values are -exp of another weight's, which is the checkpoint's tensor (A of A_log). Such a weight, or
  // one that the trunk fixes, is no parameter.
  WeightId negative_exp_of = kNone;
  std::int64_t size() const { return rows * columns; }
};

// A part of an agent's state: f32 {rows, columns}.
struct StatePart {
  std::string name;  // the same in every layer: "ssm"
  std::int64_t layer = 0, rows = 0, columns = 0;
  std::vector<float> initial;  // {rows, columns} of a new agent; empty: zeros
  std::int64_t size() const { return rows * columns; }
};

// ---- phases ----

// out = in, or out += in where it adds.
struct Copy {
  Span in, out;
  bool adds = false;
};

// out = the first values of a state part, as they were before the frame. The part is a later cell's.
struct Recall {
  Span out;
  StateId state = kNone;
};

enum class NormKind { rms, layer };
// RMSNorm: out = in / sqrt(mean(in^2) + epsilon) * weight. LayerNorm: the same of in - mean(in), plus bias.
// parts: as many equal parts of `in` are normalised, each by itself; of RMSNorm only. repeats: the weight has
// a value for the first of so many runs of parts, and is that of all of them.
struct Norm {
  Span in, out;
  NormKind kind = NormKind::rms;
  WeightId weight = kNone, bias = kNone;
  float epsilon = 0;
  std::int64_t parts = 1, repeats = 1;
};

// out = W in + b with the rows [first_row, first_row + out.size) of the weight and of the bias. relu: of the
// sum; adds: out += the sum. Never both.
struct Product {
  Span in, out;
  WeightId weight = kNone, bias = kNone;
  std::int64_t first_row = 0;
  bool relu = false, adds = false;
};

// The causal depthwise convolution over the last `taps` inputs of each channel, then silu:
// out_d = silu(sum_k weight[d][k] in_d(t - taps + 1 + k) + bias[d]). The state holds the last taps - 1
// inputs, {channels, taps - 1}, oldest first.
struct Convolution {
  Span in, out;
  WeightId weight = kNone, bias = kNone;  // {channels, taps}
  std::int64_t taps = 1;
  StateId state = kNone;
};

// out = clip(softplus(in + bias)) to [lowest, highest].
struct Softplus {
  Span in, out;
  WeightId bias = kNone;
  float lowest = 0, highest = 0;
};

// out = 1 / (1 + exp(-in)).
struct Sigmoid {
  Span in, out;
};

// out = in silu(gate).
struct Gate {
  Span in, gate, out;
};

// out = the means of as many equal parts of `in` as it has values.
struct Mean {
  Span in, out;
};

// One step of Mamba's selective scan for each channel, gated (Gu and Dao 2023, equations 2 and 4):
//   dt' = clip(softplus(dt + dt_bias)), or dt where `activates` is false
//   h' = exp(A dt') h + u B x;  u = dt', or input_dt where there is one;  y = (<C, h'> + D x) silu(z)
// In sequences of 2 to chunk_size frames inputs are decayed too: h' = exp(A dt') (h + u B x).
struct SelectiveScan {
  Span x, dt, b, c, z, out;  // {channels}; b and c {state}
  Span input_dt;             // of size 1
  WeightId a = kNone;        // {channels, state}
  WeightId d = kNone, dt_bias = kNone;
  bool activates = true;
  float lowest = 0, highest = 0;
  std::int64_t chunk_size = 0;
  StateId state = kNone;  // {channels, state}
};

// One step of a gated recurrence, unit by unit (kernels/common/cells.cuh). x: a sum for each gate; h: the
// same of what the cell's state was before the frame, of recurrent cells only. out: the first row of the
// state after the frame. All of them are {units}.
struct GatedCell {
  formulas::Cell cell = formulas::Cell::gru;
  std::array<Span, formulas::kMaxGates> x, h;
  Span out;
  StateId state = kNone;  // {states_of(cell), units}
};

// One step of a recurrence whose state is a matrix for each head (kernels/common/heads.cuh), as of Mamba-2
// and of linear attention with the delta rule. There are decay.size heads. A row of the state belongs to one
// value; head h has the key and the query of group h / (heads / groups).
//   S' = decay S + (rate value or its error) key^T;  out = S' query + d value
// Of the trapezoidal rule (Mamba-3) there is also what the frame before had, and there may be ranks: several
// keys and queries of a group, and a value and an output for each, of which `scale` has the factors.
struct HeadRecurrence {
  formulas::HeadRule rule = formulas::HeadRule::linear;
  Span value, out;  // {heads, channels}
  Span key, query;  // {groups, keys}
  Span rate;        // {heads} or {heads, channels}
  Span decay;       // {heads}
  std::int64_t groups = 1;
  WeightId a = kNone;      // {heads}: then the decay is exp(a decay)
  WeightId d = kNone;      // {skips}
  std::int64_t skips = 0;  // heads, or heads times channels
  StateId state = kNone;   // {heads channels, keys}
  // Of the trapezoidal rule: value {heads, channels}, key and query {ranks, groups, keys}, out {ranks, heads,
  // channels}, rates {heads}.
  Span value_before, key_before, rate_before;
  std::int64_t ranks = 1;
  WeightId scale = kNone;  // {heads, ranks channels}: of the values of a rank
  std::int64_t heads() const { return decay.size; }
  std::int64_t keys() const { return key.size / ranks / groups; }
  std::int64_t channels() const { return value.size / heads(); }  // of a head
};

// out = what `in` was in the frame before.
struct Delay {
  Span in, out;
  StateId state = kNone;  // as many values
};

// Angles that add up (kernels/common/trapezoid.cuh): each head's own, by the rates that all heads share and
// its dt. out: the cosine and the sine of each.
struct Angle {
  Span rate, dt, out;     // {angles}, {heads}, {heads, angles, 2}
  StateId state = kNone;  // {heads, angles}
  std::int64_t heads() const { return dt.size; }
  std::int64_t angles() const { return rate.size; }
};

// Rotary position: a key or a query of each head from that of its group, plus a bias, its pairs rotated by
// the head's angles. Pair j is of the elements 2 j and 2 j + 1, or of j and j + size / 2 where they are
// halves; what has no angle stays.
struct Rotation {
  Span in, turn, out;     // {ranks, groups, size}, {heads, angles, 2}, {ranks, heads, size}
  WeightId bias = kNone;  // {heads, ranks size}
  std::int64_t ranks = 1, groups = 1, heads = 1;
  bool halves = false;
  std::int64_t size() const { return in.size / ranks / groups; }
  std::int64_t angles() const { return turn.size / heads / 2; }
};

// The coefficients of the trapezoidal rule for each head (kernels/common/trapezoid.cuh). out {3, heads}: the
// factors of the input before, of the input now, and of the state.
struct Trapezoid {
  Span dt, a, mix, out;
  float floor = 0;  // of -A
};

// From the channels of heads to several ranks of them, or back:
//   out[r][h][c] = weight[h][r][c] in[h][c];  out[h][c] = sum over r of weight[h][r][c] in[r][h][c]
struct RankScale {
  Span in, out;
  WeightId weight = kNone;  // {heads, ranks channels}
  std::int64_t heads = 1, ranks = 1;
  bool back = false;
  std::int64_t channels() const { return (back ? out.size : in.size) / heads; }
};

using Phase = std::variant<Copy, Norm, Product, Convolution, Softplus, Mean, SelectiveScan, Recall, GatedCell,
                           Sigmoid, Gate, HeadRecurrence, Delay, Angle, Rotation, Trapezoid, RankScale>;
using Block = std::vector<Phase>;

struct Network {
  std::vector<Vector> vectors;
  std::vector<Weight> weights;
  std::vector<StatePart> states;  // in the order of State's values (core/policy/policy.hpp)
  VectorId frame = kNone, hidden = kNone, outs = kNone;
  Block input;  // from frame to hidden
  std::vector<Block> layers;
  Block output;  // from hidden to outs

  std::int64_t size_of(VectorId vector) const { return vectors[static_cast<std::size_t>(vector)].size; }
  Span all_of(VectorId vector) const { return {vector, 0, size_of(vector)}; }
  const Weight& weight(WeightId id) const { return weights[static_cast<std::size_t>(id)]; }
  const StatePart& state(StateId id) const { return states[static_cast<std::size_t>(id)]; }
  std::int64_t state_floats() const;        // of one agent
  std::int64_t state_at(StateId id) const;  // where the part begins, in floats
};

// Throws internal where the network breaks its rules, or where the sizes of a phase's vectors, weights and
// states disagree.
void check(const Network& network);

// ---- what follows from a phase ----

std::vector<Span> reads(const Phase& phase);  // also what it adds to
Span writes(const Phase& phase);
bool adds(const Phase& phase);            // to what it writes, which it also reads
StateId state_of(const Phase& phase);     // the part that it owns; kNone where it has none
StateId recalled_by(const Phase& phase);  // the part that it reads; kNone where it is no recall
std::vector<WeightId> weights_of(const Phase& phase);

// ---- what follows from a list ----

// For each phase of a layer, the first one: whether it needs the frame alone, no state, and no other phase
// writes its vector. Such phases are computed once for each frame of a session with a window.
std::vector<bool> frame_only(const Network& network);
// The vectors, or parts of them, that a window needs of each frame: what frame-only phases write and later
// ones read; first of all `hidden`.
std::vector<Span> kept_of_frame(const Network& network);
// For each phase of a layer, whether a state of this layer depends on it. Of the last layer, the others are
// needed only for frames that are answered.
std::vector<bool> feeds_state(const Block& layer);
// Whether inputs of a scan are decayed in a sequence of `frames` frames.
inline bool decays_input(const SelectiveScan& scan, std::int64_t frames) {
  return frames > 1 && frames <= scan.chunk_size;
}
// Whether those of any scan of the network are. A carried state follows the rule of windows of
// PolicyConfig::window frames; a window of as many frames as decay likewise has the bits of its steps.
bool decays_input(const Network& network, std::int64_t frames);
// Whether its state is a matrix, with several values for each channel: core::with_states.
inline bool has_matrix_state(const Phase& phase) {
  return std::holds_alternative<SelectiveScan>(phase) || std::holds_alternative<HeadRecurrence>(phase);
}
// Multiplications of weights for one frame.
std::int64_t products_of(const Network& network);
// Every phase of the network, in its order.
std::vector<const Phase*> phases_of(const Network& network);

}  // namespace exphil::core
