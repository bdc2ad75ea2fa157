// The arguments of the kernels of a policy's gradient (policy/product_gradient.cu, policy/gradient.cu,
// policy/gradient_scan.cu). Compiled by the host compiler (c_src/cuda/policy/gradient_kernels.cpp fills them)
// and by NVRTC. All pointers are device addresses; matrices are dense and row-major unless a stride is given,
// strides are in floats.
#pragma once

namespace exphil {
namespace policy {

// ---- policy/product_gradient.cu: out(m, n) = sum over k of A(m, k) B(k, n) ----

// What a product is of, and so how its operands lie in memory: neighbours are along k, or along m or n.
enum ProductOf : int {
  kForwardProduct,  // A: rows, along k; B: a weight, along k
  kInputProduct,    // A: rows, along k; B: a weight, along n
  kWeightProduct    // A: rows, along m; B: rows, along n
};

// One run of k. a_stride, b_stride: from one m or n to the next of an operand that lies along k, else from
// one k to the next.
struct ProductPiece {
  const float* a;
  const float* b;
  long long a_stride, b_stride;
  long long depth;
};

// What happens to a sum before it is written. kAdd: other(m, n) is added. kRelu: negative values become zero.
// kMask: zero where other(m, n) is not positive.
enum AfterProduct : int { kStore, kAdd, kRelu, kMask };

constexpr int kMostPieces = 4;  // the gates of an LSTM, whose sums read one input

struct ProductJob {
  ProductPiece pieces[kMostPieces];  // k runs through one after another
  int piece_count;
  ProductOf product;
  AfterProduct after;
  long long rows;        // of m
  int columns;           // of n
  int parts;             // of k, where there is one piece: a sum for each, out_part floats apart
  long long part_depth;  // k of a part
  float* out;            // out_row floats from one row to the next
  long long out_row, out_part;
  const float* bias;   // {columns}, added to every row; null: none
  const float* other;  // of kAdd and kMask, other_row floats a row; may be `out`
  long long other_row;
  float* row_sums;        // {parts, rows}: the sum over k of A(m, k); null: not wanted
  long long first_block;  // of the launch
};

// The jobs of one launch: none reads what another writes.
constexpr int kMostJobs = 8;
struct ProductJobs {
  ProductJob jobs[kMostJobs];
  int count;
  int tile_rows;  // kTileRows or kLowTileRows: does not change a bit
};

// Low tiles are for launches that would leave multiprocessors idle: twice the blocks.
constexpr int kTileRows = 64, kLowTileRows = 32, kTileColumns = 64, kTileDepth = 16, kTileThreads = 128;
// By warpgroups there are no low tiles, but one or several strands of threads for a tile. How many decides
// bits, and so what a network is alone. Shared memory has two steps of B, split, and four of both operands.
constexpr int kMostStrands = 4, kWideSumStride = kTileColumns + 8;
constexpr int wide_product_shared(int strands) {
  return strands * (2 * 2 * kTileColumns + 4 * (kTileRows + kTileColumns)) * kTileDepth * 4;
}

// ---- policy/gradient.cu ----

constexpr int kGradientThreads = 256;
constexpr int kNormRows = 16;       // of a block of policy_gradient_norm_back
constexpr int kConvolveSteps = 32;  // time steps of a thread of policy_gradient_convolve_back

// x, out, dy and dx: {rows, width}; rows of `out` are out_row apart. With u = (x - mean) scale:
// out = u weight + bias; RMSNorm has mean 0.
struct NormArguments {
  const float *x, *weight, *bias;  // bias: null for RMSNorm
  float* out;
  long long out_row;  // of a part, where there are several
  const float* dy;
  float* dx;
  float *weight_parts, *bias_parts;  // {blocks, width}: sums over the rows of a block
  long long rows;
  int width;
  float epsilon;
  int adds;     // dx is added to
  int parts;    // of a row, each normalised by itself; width: of one. weight_parts: of all of them
  int weights;  // the weight has those of so many parts, one after another, and repeats them
};

// A run of `inner` channels of a convolution of `channels`, whose addresses are those of the first of the
// run. x, s, ds and dx: {sequences, seq, inner}; rows of x and dx are x_row apart, those of s and ds s_row. s
// = silu(v), v the sums of the causal convolution of x.
struct ConvolveArguments {
  const float *x, *weight, *bias;  // {channels, taps}, oldest first; {channels}, null: zeros
  const float* history;            // {sequences, channels, taps - 1}: x before the first step; null: zeros
  float* s;
  const float* ds;
  float* dx;
  float *weight_parts, *bias_parts;  // {sequences, segments, channels, taps}, {sequences, segments, channels}
  float* final_history;              // {sequences, channels, taps - 1}
  float* d_history;                  // as history; null: not wanted
  long long sequences, seq, x_row, s_row;
  int inner, channels;
};

// A copy of rows with other strides. A thread for each value.
struct CopyRowsArguments {
  const float* from;
  float* to;
  long long from_row, to_row;
  long long rows;
  int columns;
};

// Sums of parts, in their order: to[i] = the sum over p of from[p count + i], times factor[i]; to[i] += it
// where `adds`.
struct PartSum {
  const float* from;
  const float* factor;  // null: 1
  float* to;
  long long parts, count;
  long long first_block;  // of the launch
  int strands;            // threads that share an element: 1 or kMostPartStrands
  int adds;
};
constexpr int kMostPartSums = 24, kMostPartStrands = 8;
struct PartSums {
  PartSum sums[kMostPartSums];
  int count;
};

// ---- policy/gradient_scan.cu: the scans that kernels/scan has not ----

// Rows {sequences, seq, inner} unless said otherwise.
struct ActivateArguments {
  const float *dt, *bias;   // before softplus; {inner}
  float *active, *mean;     // {rows}: the mean over the channels; null: not wanted
  const float* d_active;    // of `active` but for its mean
  const float* d_input_dt;  // of the mean: terms of a sum over the channels; null: none
  float* d_dt;              // may be d_active
  long long rows;
  int inner;
  float lowest, highest;
};

struct GradientScanArguments {
  const float *s, *dt, *z;  // dt: active
  const float* mean_dt;     // {rows}; null: inputs are scaled by dt
  const float *b, *c;       // {rows, state}
  const float *a, *d;       // {inner, state}; {inner}, null: zeros
  const float* initial;     // {sequences, inner, state}; null: zeros
  float *gated, *final;     // final: {sequences, inner, state}, or null
  const float* d_gated;
  float* d_initial;  // as initial; null: not wanted
  float *ds, *ddt, *dz;
  float* d_input_dt;         // where there is a mean
  float *a_parts, *d_parts;  // {sequences, inner, state}; {sequences, inner} or null
  float *b_parts, *c_parts;  // {tiles of channels, rows, state}
  float* states;             // {sequences, tiles, segments + kScanSegment, kScanThreads}
  long long sequences, seq;
  int inner, state;
  int decays;  // inputs are decayed by their own step
};
constexpr int kScanThreads = 256, kScanSegment = 32;

// ---- policy/gradient_heads.cu: a recurrence over heads (common/heads.cuh) ----

// With the linear rule the rate and the decay are dt. With the delta rule dt is the rate of each channel, and
// so is dt_parts, of one part. With the trapezoidal one there are ranks: keys and
// queries {rows, ranks, heads keys}, out {rows, ranks, heads channels}; dt is the rate. Tiles: of rows of a
// head (policy/gradient_heads.cuh).
struct GradientHeadsArguments {
  const float *value, *dt;   // {rows, heads channels}, {rows, heads}
  const float *key, *query;  // {rows, groups keys}
  const float *a, *d;        // {heads}; {skips}, null: zeros
  const float* initial;      // {sequences, heads channels, keys}; null: zeros
  float *out, *final;        // final: as initial, or null
  const float* d_final;      // as initial: of the states after the last row; null: zeros
  float* d_initial;          // as initial; null: not wanted
  const float* d_out;
  float* d_value;
  float* dt_parts;                 // {tiles of a head, rows, heads}
  float *key_parts, *query_parts;  // {tiles of a group, rows, groups keys}
  float* a_parts;                  // {sequences, tiles of a head, heads}
  float* d_parts;                  // as a_parts, or {sequences, skips} where each value has one; null: none
  float* states;                   // {sequences, tiles, slots, floats of a thread, kHeadWalkThreads}
  long long sequences, seq;
  int heads, groups, channels, skips;
  const float* decay;  // with the delta and the trapezoidal rule: {rows, heads}
  float* decay_parts;  // {tiles of a head, rows, heads}
  // With the trapezoidal rule.
  const float *value_before, *key_before, *rate_before;  // as those of the frame itself
  const float* scale;                                    // {heads, ranks, channels}; null: ones
  float* d_value_before;
  float *rate_before_parts, *key_before_parts;  // as dt_parts and key_parts
  float* scale_parts;                           // {sequences, heads, ranks, channels}; null: none
};

// ---- policy/gradient_trapezoid.cu: beside heads with the trapezoidal rule (common/trapezoid.cuh) ----

// {rows, heads} each.
struct GradientCoefficientsArguments {
  const float *dt, *a, *mix;
  float *before, *now, *decay;
  const float *d_before, *d_now, *d_decay;
  float *d_dt, *d_a, *d_mix;
  long long count;  // rows heads
  float floor;      // of -A
};

struct GradientAngleArguments {
  const float *rate, *dt;  // {rows, angles}, {rows, heads}
  const float* initial;    // {sequences, heads, angles}; null: zeros
  float *turn, *final;     // {rows, heads, angles, 2}; as initial, or null
  const float* d_turn;
  float* d_initial;              // as initial; null: not wanted
  float *rate_parts, *dt_parts;  // {heads, rows, angles}, {angles, rows, heads}
  long long sequences, seq;
  int heads, angles;
};

struct GradientRotationArguments {
  const float *in, *turn,
      *bias;   // {rows, ranks, groups, size}, {rows, heads, angles, 2}, {heads, ranks, size}
  float* out;  // {rows, ranks, heads, size}
  const float* d_out;
  float *d_in, *d_turn;
  float* bias_parts;  // {rows, heads, ranks, size}
  long long rows;
  int ranks, groups, heads, size, angles, halves;
};

// {rows, size} each, and {sequences, size}.
struct GradientDelayArguments {
  const float *in, *initial;  // initial: null: zeros
  float *out, *final;         // final: or null
  const float* d_out;
  float *d_in, *d_initial;  // d_initial: null: not wanted
  long long sequences, seq;
  int size;
};

// core::RankScale.
struct GradientRankArguments {
  const float *in, *weight;  // weight: {heads, ranks, channels}
  float* out;
  const float* d_out;
  float* weight_parts;  // {blocks of kNormRows rows, heads, ranks, channels}
  long long rows;
  int heads, ranks, channels, back;
};

// ---- policy/gradient_gate.cu: out = x silu(gate), the sigmoid of x, or means of as many parts of x ----

struct GradientGateArguments {
  const float *x, *gate;
  float* out;
  const float* d_out;
  float *dx, *d_gate;
  long long count;  // of x
  int part;         // of which a mean is
};

// Threads of a channel, a power of two, and channels of a block.
constexpr int scan_lanes(int state) {
  int lanes = 1;
  while (lanes < state) lanes *= 2;
  return lanes;
}
constexpr int scan_channels(int state) {
  return kScanThreads / scan_lanes(state);
}

}  // namespace policy
}  // namespace exphil
