// The padded sizes of a policy, and the layout of its weights, states and shared memory. Everything is
// constexpr over a value of Network or Dims, so one definition serves both sides: c_src/cuda/policy packs and
// launches with one that is made of a checkpoint's config; policy/dims.cuh makes one of a kernel's defines.
#pragma once

#include "kernels/policy/names.cuh"
#include "kernels/policy/parts.cuh"

namespace exphil {
namespace policy {

// Values of a norm that a product behind it needs for each row of X: the scale, and the mean.
constexpr int norm_values(const Dims& dims) {
  return dims.centres() ? 2 : 1;
}

// The weights of a matrix, in groups of four consecutive k of one row: kernels/policy/weights.cuh has the
// type of a group. A part of bytes, because their size depends on how they are stored.
struct MatrixPart : Part<unsigned char> {
  constexpr MatrixPart() = default;
  constexpr MatrixPart(const Dims& dims, long long after, long long weights, long long alignment = 16)
      : Part<unsigned char>(after, weights * dims.weight_bytes(), alignment) {}
};

// What completes the sums of a matrix's rows, a value of each for every row: the bias, where it has one; the
// scales of int8; and for the matrix behind a norm the sums of its rows, where the form centres.
struct RowVectors {
  Part<float> bias, scale, sums;
  constexpr RowVectors(const Dims& dims, long long after, long long rows, bool normed, bool has_bias = true)
      : bias(after, has_bias ? rows : 0),
        scale(bias.end(), dims.row_scales() ? rows : 0),
        sums(scale.end(), normed && dims.centres() ? rows : 0) {}
  constexpr long long end() const { return sums.end(); }
};

// ---- policy_step: the share of one block of a team ----
//

// Channels of the inner dimension (in multiples of a segment), rows of the model dimension and outputs of one
// block. Where the last blocks have fewer, their weights are filled with zeros.
struct Share {
  int own_segments, own, rows, heads, hidden;
  constexpr Share(const Dims& dims, int team)
      : own_segments(divide_up(dims.inner() / kSegment, team)),
        own(own_segments * kSegment),
        rows(divide_up(dims.model(), team)),
        heads(divide_up(dims.output(), team)),
        hidden(divide_up(dims.hidden(), team)) {}
};

// The sections of a block's weights. A matrix of R rows and S segments is stored as groups [8][S * R]: task
// t = segment * R + row reads its 32 weights at j * S * R + t for j = 0..7, so that neighbouring threads read
// neighbouring groups.
struct InputSection {  // input_proj
  MatrixPart weight;
  RowVectors rows;
  long long bytes;
  constexpr InputSection(const Dims& dims, const Share& share)
      : weight(dims, 0, 1LL * share.rows * dims.input()),
        rows(dims, weight.end(), share.rows, false),
        bytes(round_up_bytes(rows.end(), 16)) {}
};

// The matrix that reads the hidden state is folded with norm_f: `hidden`, or `weight` where there is no
// hidden layer.
struct HeadSection {
  MatrixPart weight;
  RowVectors rows;
  MatrixPart hidden;
  RowVectors hidden_rows;
  long long bytes;
  constexpr HeadSection(const Dims& dims, const Share& share)
      : weight(dims, 0, 1LL * share.heads * dims.head_depth()),
        rows(dims, weight.end(), share.heads, dims.d_hidden == 0 && dims.form.final_norm),
        hidden(dims, rows.end(), 1LL * share.hidden * dims.model()),
        hidden_rows(dims, hidden.end(), share.hidden, dims.form.final_norm),
        bytes(round_up_bytes(hidden_rows.end(), 16)) {}
};

// All of a layer but in_proj. In parts that are indexed by channel, the channel is the last index.
struct LayerSection {
  RowVectors in_rows;           // of in_proj: x rows, then z rows
  Part<float> conv, conv_bias;  // {taps, own}, {own}
  MatrixPart x_proj;            // projection rows, own segments
  RowVectors projection_rows;   // all of them
  MatrixPart dt_proj;           // groups {rank / 4, own}
  RowVectors dt_rows;           // {own}
  Part<float> a, d;             // {own, state}, {own}
  MatrixPart out_proj;          // `rows` rows, all segments
  RowVectors out_rows;
  long long bytes;
  constexpr LayerSection(const Dims& dims, const Share& share)
      : in_rows(dims, 0, 2LL * share.own, true),
        conv(in_rows.end(), 1LL * dims.taps() * share.own),
        conv_bias(conv.end(), share.own),
        x_proj(dims, conv_bias.end(), 1LL * dims.projection() * share.own),
        projection_rows(dims, x_proj.end(), dims.projection(), false, dims.form.projection_bias),
        dt_proj(dims, projection_rows.end(), 1LL * dims.rank() * share.own),
        dt_rows(dims, dt_proj.end(), share.own, false),
        a(dt_rows.end(), 1LL * share.own * dims.state()),
        d(a.end(), share.own),
        out_proj(dims, d.end(), 1LL * share.rows * dims.inner()),
        out_rows(dims, out_proj.end(), share.rows, false),
        bytes(round_up_bytes(out_rows.end(), 16)) {}
};

struct InProjSection {  // x rows, then z rows; the columns are multiplied by norm
  MatrixPart weight;
  long long bytes;
  constexpr InProjSection(const Dims& dims, const Share& share)
      : weight(dims, 0, 2LL * share.own * dims.model()), bytes(round_up_bytes(weight.end(), 16)) {}
};

// The weights of one block. The part that is staged in shared memory comes first.
struct TeamLayout {
  Share share;
  InputSection input;
  HeadSection head;
  LayerSection layer;
  InProjSection in_proj;
  long long input_at, head_at, layers_at, staged_bytes, in_projs_at, bytes;

  constexpr TeamLayout(const Dims& dims, int team)
      : share(dims, team),
        input(dims, share),
        head(dims, share),
        layer(dims, share),
        in_proj(dims, share),
        input_at(0),
        head_at(input_at + input.bytes),
        layers_at(head_at + head.bytes),
        staged_bytes(layers_at + dims.layers() * layer.bytes),
        in_projs_at(staged_bytes),
        bytes(in_projs_at + dims.layers() * in_proj.bytes) {}

  constexpr long long layer_at(int index) const { return layers_at + index * layer.bytes; }
  constexpr long long in_proj_at(int index) const { return in_projs_at + index * in_proj.bytes; }
};

// Activations of `agents` agents in a block's shared memory, after the staged weights. Those up to `go` are
// the board, which the blocks of a team write to each other.
struct ActivationLayout {
  Part<float> h, y, projection_parts;  // {agents}{model}, {inner}, {inner segments, projection}
  Part<float> dt_parts;                // {agents, inner segments}; empty where no mean of dt is needed
  Part<float> hidden;                  // {agents, hidden}
  Part<float> obs;                     // {agents, input}
  Part<float> go;                      // of a launch ahead of its observation: 1 where that has come
  Part<float> u, gate, dt;             // {agents, own} each
  Part<float> projection;              // {agents, projection}
  Part<float> parts;                   // {agents}{tasks} of the widest product
  Part<float> residual;                // {agents, rows}: this block's rows of h before the layer
  Part<float> norm_scale;              // {agents}
  Part<float> norm_mean;               // {agents}; empty where the form does not centre
  Part<const float*> from;             // {agents}: states to read; null beyond the last agent
  Part<float*> to;                     // {agents}: states to write
  Part<unsigned long long> arrived;    // barriers of the staged sections: input, head, the layers
  long long bytes;

  constexpr ActivationLayout(const Dims& dims, const Share& share, int agents)
      : h(0, 1LL * agents * dims.model()),
        y(h.end(), 1LL * agents * dims.inner()),
        projection_parts(y.end(), 1LL * agents * (dims.inner() / kSegment) * dims.projection()),
        dt_parts(projection_parts.end(), dims.form.mean_dt ? 1LL * agents * (dims.inner() / kSegment) : 0),
        hidden(dt_parts.end(), 1LL * agents * dims.hidden()),
        obs(hidden.end(), 1LL * agents * dims.input()),
        go(obs.end(), 1),
        u(go.end(), 1LL * agents * share.own),
        gate(u.end(), 1LL * agents * share.own),
        dt(gate.end(), 1LL * agents * share.own),
        projection(dt.end(), 1LL * agents * dims.projection()),
        parts(projection.end(), 1LL * agents * most_tasks(dims, share)),
        residual(parts.end(), 1LL * agents * share.rows, sizeof(float)),
        norm_scale(residual.end(), agents, sizeof(float)),
        norm_mean(norm_scale.end(), dims.centres() ? agents : 0, sizeof(float)),
        from(norm_mean.end(), agents, sizeof(float*)),
        to(from.end(), agents, sizeof(float*)),
        arrived(to.end(), 2 + dims.layers(), sizeof(unsigned long long)),
        bytes(round_up_bytes(arrived.end(), 16)) {}

  constexpr long long board_bytes() const { return go.end(); }

  static constexpr int most_tasks(const Dims& dims, const Share& share) {
    const int model_segments = dims.model() / kSegment;
    return most(most(most(share.rows * (dims.input() / kSegment), 2 * share.own * model_segments),
                     most(share.rows * (dims.inner() / kSegment), share.hidden * model_segments)),
                share.heads * (dims.head_depth() / kSegment));
  }
};

// ---- the kernels over many rows ----
//

// policy/product.cu. A weight matrix is groups [k / 4][product_columns(outputs)].
constexpr int product_columns(int outputs) {
  return round_up(outputs, 64);
}

// Rows of a product_few tile for the inner dimension k, so that X and the segment sums together fit in 48 KB
// of shared memory; 0 where not even one row fits: product_many then handles any number of rows.
constexpr int few_rows(int k) {
  int rows = 16;
  while (rows > 0 && 2 * k * rows * 4 > 40 * 1024) rows /= 2;
  return rows;
}
constexpr int kFewColumns = 32, kFewThreads = 256;
constexpr int kManyRows = 128, kManyColumns = 64, kManyThreads = 128;

}  // namespace policy
}  // namespace exphil
