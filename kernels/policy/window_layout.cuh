// The shared memory and the tiles of policy/window.cu and policy/window_team.cu, for the kernels and for
// c_src/cuda/policy/window.cpp.
#pragma once

#include "kernels/policy/layout.cuh"
#include "kernels/policy/team_layout.cuh"
#include "kernels/policy/window_plan.cuh"

namespace exphil {
namespace policy {

constexpr int kWindowThreads = 256;
// Products of up to this many rows take tiles of one row, so that more blocks share them.
constexpr int kLoneRows = 4;
// Channels of a tile of a scan: few, so that many blocks share them. They divide kSegment.
constexpr int kTimeChannels = 4;

constexpr long long greater(long long left, long long right) {
  return left > right ? left : right;
}

// A scan's tile of time for kTimeChannels channels.
struct WindowTimeLayout {
  Part<float> bc;              // {steps, 2 state}
  Part<float> u, dt, gate;     // {steps, channels} each
  Part<float> a;               // {channels, state}
  Part<float> decays, states;  // {steps, channels, state} each
  Part<float> input_dt;        // {steps}, where inputs are scaled by another dt
  long long bytes;

  constexpr WindowTimeLayout(const Network& n, const Scan& scan, int steps)
      : bc(0, 2LL * steps * n.size(scan.b)),
        u(bc.end(), 1LL * steps * kTimeChannels),
        dt(u.end(), 1LL * steps * kTimeChannels),
        gate(dt.end(), 1LL * steps * kTimeChannels),
        a(gate.end(), 1LL * kTimeChannels * n.size(scan.b)),
        decays(a.end(), 1LL * steps * kTimeChannels * n.size(scan.b)),
        states(decays.end(), 1LL * steps * kTimeChannels * n.size(scan.b)),
        input_dt(states.end(), steps),
        bytes(round_up_bytes(input_dt.end(), 16)) {}
};

constexpr int window_steps(const Network& n, const Scan& scan) {
  int steps = 64;
  while (steps > 1 && WindowTimeLayout(n, scan, steps).bytes > 47 * 1024) steps /= 2;
  return steps;
}
// Of all scans of a layer.
constexpr long long window_time_bytes(const Network& n, const WindowPlan& plan) {
  long long bytes = 0;
  for (int i = plan.rows_end; i + 1 < n.layer.count; ++i) {
    const Scan& scan = n.scans[n.layer.phases[i].index];
    bytes = greater(bytes, WindowTimeLayout(n, scan, window_steps(n, scan)).bytes);
  }
  return bytes;
}

// The phases of rows, for one row.
struct WindowRowLayout {
  // By buffer: what products of rows read. Of what a mean reads, the sums of its segments.
  Part<float> vectors[kMostVectors] = {};
  Part<float> parts;  // {segments, rows} of the widest product
  long long bytes = 0;

  constexpr WindowRowLayout(const Network& n, const WindowPlan& plan) {
    long long end = 0, tasks = 0;
    for (int i = 1; i < plan.rows_end; ++i) {
      const Phase& phase = n.layer.phases[i];
      if (phase.kind == Kind::product && !n.products[phase.index].is_short) {
        const Product& p = n.products[phase.index];
        tasks = greater(tasks, 1LL * (n.size(p.in) / kSegment) * n.rows(p));
        end = place(p.out[0].vector, end, n.rows(p));
      } else if (phase.kind == Kind::convolution) {
        const int out = n.convolutions[phase.index].out;
        end = place(out, end, n.size(out));
      } else if (phase.kind == Kind::mean) {
        const int in = n.means[phase.index].in;
        end = place(in, end, n.size(in) / kSegment);
      }
    }
    parts = Part<float>(end, tasks);
    bytes = round_up_bytes(parts.end(), 16);
  }

 private:
  constexpr long long place(int vector, long long after, long long values) {
    vectors[vector] = Part<float>(after, values);
    return vectors[vector].end();
  }
};

// sizeof(FewTile<k, rows>) of policy/product.cuh.
constexpr long long few_tile_bytes(const Network& n, int k, int rows) {
  bool centres = false;
  for (const Product& product : n.products) centres = centres || n.centres(product);
  return round_up_bytes(4LL * rows * (2 * k + (centres ? 2 : 1)), 16);
}

// 0 where the kernel does not take this policy.
constexpr long long window_shared_bytes(const Network& n) {
  const WindowPlan plan(n);
  if (!plan.fits) return 0;
  long long bytes = greater(WindowRowLayout(n, plan).bytes, window_time_bytes(n, plan));
  for (const Product& product : n.products) {
    // Those of rows are not computed in tiles.
    if (product.outputs == 0 || plan.vectors[product.in].in_rows) continue;
    const int depth = n.size(product.in);
    if (few_rows(depth) == 0) return 0;
    bytes = greater(bytes, few_tile_bytes(n, depth, few_rows(depth)));
  }
  return bytes;
}

// ---- policy/window_team.cu ----
//
// A team takes `rows` frames of a window at a time, and the frames before them that convolutions read.
struct WindowTeamShape {
  int team = 0, threads = 0, rows = 0;
};

// Own channels of the first `outputs` outputs of a product, one after another.
constexpr int own_channels(const Network& n, const Product& p, int outputs, int team) {
  int channels = 0;
  for (int o = 0; o < outputs; ++o) channels += own_channels(n.size(p.out[o].vector), team);
  return channels;
}

// Of the widest output of the leading product.
constexpr int lead_channels(const Network& n, const WindowPlan& plan, int team) {
  const Product& p = n.products[plan.lead];
  int channels = 0;
  for (int o = 0; o < p.outputs; ++o) {
    channels = most(channels, own_channels(n.size(p.out[o].vector), team));
  }
  return channels;
}

// What a block has of a phase's weights in shared memory. The channel, where there is one, is the last index.
struct StagedPhase {
  // Of the leading product: groups {k / 4, own columns}; of a long one of rows: groups {own k / 4, rows}; of
  // a short one: groups {k / 4, own columns}.
  MatrixPart matrix;
  RowVectors rows;               // of the own columns
  Part<float> channels, values;  // of a convolution: {taps, own}, {own}
};
// Those of a layer's phases up to the scans.
struct WindowTeamWeights {
  StagedPhase phases[kMostPhases] = {};
  long long bytes = 0;

  constexpr WindowTeamWeights(const Network& n, const WindowPlan& plan, int team) {
    for (int i = 0; i < plan.rows_end; ++i) {
      const Phase& phase = n.layer.phases[i];
      StagedPhase& to = phases[i];
      if (phase.kind == Kind::convolution) {
        const Convolution& c = n.convolutions[phase.index];
        const int own = own_channels(n.size(c.in), team);
        to.channels = Part<float>(bytes, 1LL * c.taps * own);
        to.values = Part<float>(to.channels.end(), own);
        bytes = to.values.end();
      } else if (phase.kind == Kind::product) {
        bytes = place(n, n.products[phase.index], team, i > 0 && !n.products[phase.index].is_short, &to);
      }
    }
    bytes = round_up_bytes(bytes, 16);
  }

 private:
  constexpr long long place(const Network& n, const Product& p, int team, bool by_depth, StagedPhase* to) {
    if (by_depth) {
      to->matrix = MatrixPart(n, bytes, 1LL * n.rows(p) * own_channels(n.size(p.in), team));
      return to->matrix.end();
    }
    const int own = own_channels(n, p, p.outputs, team);
    to->matrix = MatrixPart(n, bytes, 1LL * n.size(p.in) * own);
    to->rows = RowVectors(n, to->matrix.end(), own, p, true);
    return to->rows.end();
  }
};

// A block's values for the frames of its team; `all` are the frames with those before them. What other blocks
// write to: the frame, the hidden values, `parts`, means, and vectors of the output block. Some share memory,
// because a barrier of the team comes between their uses.
struct WindowTeamLayout {
  WindowPlan plan;
  WindowTeamWeights weights;
  int all;
  // The frame, the hidden values and what the closing product reads: {all}{size}. Of the leading product's
  // outputs, those that convolutions read: {all, own}; what they write: {rows, own}. Of a product of rows,
  // what short ones read: {rows}{size}; of what a mean reads, the sums of its segments: {rows, segments}. Of
  // the output block: {size}.
  Part<float> vectors[kMostVectors] = {};
  Part<float> lead_parts;                    // {frames of the outputs}{own, segments} of the leading product
  Part<float> parts;                         // {all}{tasks} of the others that divide their rows
  Part<float> deep_parts[kMostPhases] = {};  // {rows}{segments, rows} of products of rows
  Part<float> norm_scale, norm_mean;         // {all} each
  long long activations_at = 0, bytes = 0;

  constexpr WindowTeamLayout(const Network& n, const WindowTeamShape& shape)
      : plan(n), weights(n, plan, shape.team), all(shape.rows + plan.history) {
    if (!plan.fits) return;
    const long long deep_end = place_parts(n, shape);
    long long end = place(n.hidden, deep_end, 1LL * all * n.size(n.hidden));
    for (int v = 0; v < kMostVectors; ++v) {
      const WindowVector& at = plan.vectors[v];
      const int own = own_channels(n.size(v), shape.team);
      if (at.writer == Writer::lead && at.convolved) end = place(v, end, 1LL * all * own);
      if (at.writer == Writer::convolution) end = place(v, end, 1LL * shape.rows * own);
      if (at.writer == Writer::deep && at.in_rows) end = place(v, end, 1LL * shape.rows * n.size(v));
      if (at.averaged) end = place(v, end, 1LL * shape.rows * (n.size(v) / kSegment));
    }
    norm_scale = Part<float>(end, all);
    norm_mean = Part<float>(norm_scale.end(), all);
    end = norm_mean.end();
    for (int v = 0; v < kMostVectors; ++v) {
      if (plan.vectors[v].writer == Writer::output) end = place(v, end, n.size(v));
    }
    activations_at = weights.bytes;
    bytes = activations_at + greater(round_up_bytes(end, 16), window_time_bytes(n, plan));
  }

 private:
  constexpr long long place(int vector, long long after, long long values) {
    vectors[vector] = Part<float>(after, values);
    return vectors[vector].end();
  }
  constexpr long long place_parts(const Network& n, const WindowTeamShape& shape) {
    const Product& lead = n.products[plan.lead];
    long long lead_tasks = 0;
    int tasks = 0;
    for (int o = 0; o < lead.outputs; ++o) {
      const int frames = plan.vectors[lead.out[o].vector].convolved ? all : shape.rows;
      lead_tasks += 1LL * frames * lead_channels(n, plan, shape.team) * (n.size(lead.in) / kSegment);
    }
    const int read = n.products[plan.close].in;
    lead_parts = Part<float>(0, lead_tasks);
    long long end =
        greater(place(n.frame, 0, 1LL * all * n.size(n.frame)), place(read, 0, 1LL * all * n.size(read)));
    for (const Product& p : n.products) {
      if (p.outputs == 0 || p.in == kNoVector || plan.vectors[p.in].in_rows || &p == &lead) continue;
      tasks = most(tasks, divide_up(n.rows(p), shape.team) * (n.size(p.in) / kSegment));
    }
    parts = Part<float>(greater(end, lead_parts.end()), 1LL * all * tasks);
    end = parts.at;
    for (int i = 1; i < plan.rows_end; ++i) {
      const Phase& phase = n.layer.phases[i];
      if (phase.kind != Kind::product || n.products[phase.index].is_short) continue;
      const Product& p = n.products[phase.index];
      deep_parts[i] = Part<float>(end, 1LL * shape.rows * (n.size(p.in) / kSegment) * n.rows(p));
      end = deep_parts[i].end();
    }
    return greater(parts.end(), end);
  }
};

}  // namespace policy
}  // namespace exphil
