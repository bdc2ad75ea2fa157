// The shared memory and the tiles of policy/window.cu and policy/window_team.cu, for the kernels and for
// c_src/cuda/policy/window.cpp.
#pragma once

#include "kernels/policy/layout.cuh"

namespace exphil {
namespace policy {

constexpr int kWindowThreads = kFewThreads;
// Products of up to this many rows take tiles of one row, so that more blocks share them.
constexpr int kLoneRows = 4;
// Channels of a tile of the state update: few, so that many blocks share them. They divide kSegment.
constexpr int kTimeChannels = 4;

constexpr long long greater(long long left, long long right) {
  return left > right ? left : right;
}

// The state update's tile of time for kTimeChannels channels.
struct WindowTimeLayout {
  Part<float> bc;              // {steps, 2 state}
  Part<float> u, dt, gate;     // {steps, channels} each
  Part<float> a;               // {channels, state}
  Part<float> decays, states;  // {steps, channels, state} each
  Part<float> mean_dt;         // {steps}
  long long bytes;

  constexpr WindowTimeLayout(const Dims& dims, int steps)
      : bc(0, 2LL * steps * dims.state()),
        u(bc.end(), 1LL * steps * kTimeChannels),
        dt(u.end(), 1LL * steps * kTimeChannels),
        gate(dt.end(), 1LL * steps * kTimeChannels),
        a(gate.end(), 1LL * kTimeChannels * dims.state()),
        decays(a.end(), 1LL * steps * kTimeChannels * dims.state()),
        states(decays.end(), 1LL * steps * kTimeChannels * dims.state()),
        mean_dt(states.end(), steps),
        bytes(round_up_bytes(mean_dt.end(), 16)) {}
};

constexpr int window_steps(const Dims& dims) {
  int steps = 64;
  while (steps > 1 && WindowTimeLayout(dims, steps).bytes > 47 * 1024) steps /= 2;
  return steps;
}
constexpr long long window_time_bytes(const Dims& dims) {
  return WindowTimeLayout(dims, window_steps(dims)).bytes;
}

// From the convolution to dt, for one row.
struct WindowRowLayout {
  Part<float> u, parts, projection,
      dt_parts;  // {inner}, {inner segments, projection}, {projection}, {segments}
  long long bytes;

  constexpr explicit WindowRowLayout(const Dims& dims)
      : u(0, dims.inner()),
        parts(u.end(), 1LL * (dims.inner() / kSegment) * dims.projection()),
        projection(parts.end(), dims.projection()),
        dt_parts(projection.end(), dims.inner() / kSegment),
        bytes(round_up_bytes(dt_parts.end(), 16)) {}
};

// sizeof(FewTile<k, rows>) of policy/product.cuh.
constexpr long long few_tile_bytes(const Dims& dims, int k, int rows) {
  return round_up_bytes(4LL * rows * (2 * k + norm_values(dims)), 16);
}

// 0 where the products of this policy do not fit product_few.
constexpr long long window_shared_bytes(const Dims& dims) {
  const int depths[] = {dims.input(), dims.model(), dims.inner(), dims.head_depth()};
  long long bytes = greater(WindowRowLayout(dims).bytes, window_time_bytes(dims));
  for (const int depth : depths) {
    if (few_rows(depth) == 0) return 0;
    bytes = greater(bytes, few_tile_bytes(dims, depth, few_rows(depth)));
  }
  return bytes;
}

// ---- policy/window_team.cu ----
//
// A team takes `rows` frames of a window at a time, and the frames before them that the convolution reads.
struct WindowTeamShape {
  int team = 0, threads = 0, rows = 0;
};

// What a block has of a layer's weights in shared memory. The channel, where there is one, is the last index.
struct WindowTeamWeights {
  MatrixPart in_proj;           // groups {model / 4, 2 own}: columns of x, then of z
  RowVectors in_rows;           // of in_proj
  Part<float> conv, conv_bias;  // {taps, own}, {own}
  MatrixPart x_proj;            // groups {own / 4, projection}
  MatrixPart dt_proj;           // groups {rank / 4, own}
  RowVectors dt_rows;           // {own}
  long long bytes;

  constexpr WindowTeamWeights(const Dims& dims, const Share& share)
      : in_proj(dims, 0, 2LL * share.own * dims.model()),
        in_rows(dims, in_proj.end(), 2LL * share.own, true),
        conv(in_rows.end(), 1LL * dims.taps() * share.own),
        conv_bias(conv.end(), share.own),
        x_proj(dims, conv_bias.end(), 1LL * dims.projection() * share.own),
        dt_proj(dims, x_proj.end(), 1LL * dims.rank() * share.own),
        dt_rows(dims, dt_proj.end(), share.own, false),
        bytes(round_up_bytes(dt_rows.end(), 16)) {}
};

// A block's values for the frames of its team; `all` are the frames with those before them. Parts that other
// blocks write to: obs, h, projection_parts, dt_parts, hidden. Some share memory, because a barrier of the
// team comes between their uses.
struct WindowTeamLayout {
  Share share;
  WindowTeamWeights weights;
  int all;
  Part<float> obs, y, in_parts;               // {all}{input}, {inner}; {all + rows}{own, model segments}
  Part<float> model_parts, projection_parts;  // {all}{tasks}; {rows}{inner segments, projection}
  Part<float> h, x, u;                        // {all}{model}, {own}; {rows, own}
  Part<float> projection, dt_parts;           // {rows}{rank}, {inner segments}
  Part<float> norm_scale, norm_mean;          // {all} each
  Part<float> hidden;
  long long activations_at, bytes;

  constexpr WindowTeamLayout(const Dims& dims, const WindowTeamShape& shape)
      : share(dims, shape.team),
        weights(dims, share),
        all(shape.rows + dims.history()),
        obs(0, 1LL * all * dims.input()),
        y(0, 1LL * all * dims.inner()),
        in_parts(0, 1LL * (all + shape.rows) * share.own * (dims.model() / kSegment)),
        model_parts(greater(greater(obs.end(), y.end()), in_parts.end()),
                    1LL * all * most_tasks(dims, share)),
        projection_parts(model_parts.at, 1LL * shape.rows * (dims.inner() / kSegment) * dims.projection()),
        h(greater(model_parts.end(), projection_parts.end()), 1LL * all * dims.model()),
        x(h.end(), 1LL * all * share.own),
        u(x.end(), 1LL * shape.rows * share.own),
        projection(u.end(), 1LL * shape.rows * dims.rank()),
        dt_parts(projection.end(), dims.form.mean_dt ? 1LL * shape.rows * (dims.inner() / kSegment) : 0),
        norm_scale(dt_parts.end(), all),
        norm_mean(norm_scale.end(), all),
        hidden(norm_mean.end(), dims.hidden()),
        activations_at(weights.bytes),
        bytes(activations_at + greater(round_up_bytes(hidden.end(), 16), window_time_bytes(dims))) {}

  // Segment sums of one row of the widest product with columns of the model or of the heads.
  static constexpr int most_tasks(const Dims& dims, const Share& share) {
    const int inputs = share.rows * (dims.input() / kSegment), outs = share.rows * (dims.inner() / kSegment);
    const int hidden = share.hidden * (dims.model() / kSegment);
    return most(most(inputs, outs), most(hidden, share.heads * (dims.head_depth() / kSegment)));
  }
};

}  // namespace policy
}  // namespace exphil
