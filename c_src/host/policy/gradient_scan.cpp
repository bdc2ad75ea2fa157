#include "host/policy/gradient_scan.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"
#include "host/policy/gradient_kernels.hpp"
#include "host/policy/phase_access.hpp"
#include "host/recurrence/gradient.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

using Stored = VectorGradients::Stored;

template <class Body>
void each_piece(const RecordedScan& r, const Body& body) {
  core::parallel_for(r.group.rows(), kPieceRows,
                     [&](std::int64_t begin, std::int64_t end) { body(begin, end - begin); });
}

// Of the result and of what the scan passes back: rows that are equally far apart.
struct ScanGradients {
  MatrixRows dy;
  Stored dx, d_dt, dz;
};

// One sequence, from its first row on.
GradientSequence sequence_of(const core::SelectiveScan& p, const RecordedScan& r, const ScanGradients& to,
                             const SequenceSums& sums, std::int64_t sequence) {
  const std::int64_t seq = r.group.all->seq, at = sequence * seq * to.dy.step;
  const std::int64_t projection = sequence * BackRows::sums_of(p, seq);
  GradientSequence g;
  g.scan = scan_of(p, r.packed, r.at, sequence * seq, seq, r.group.all->length(r.config));
  g.scan.initial_state = state_part(r.group.all->states, r.group, sequence, r.network, p.state);
  g.d_initial = state_part(r.d_states, r.group, sequence, r.network, p.state);
  g.scan.y = nullptr, g.scan.y_step = 0;
  g.checkpoints = r.checkpoints.data + sequence * r.checkpoints.step;
  g.dy = {to.dy.data + at, to.dy.step};
  g.dx = to.dx.rows.data + at, g.ddt = to.d_dt.rows.data + at, g.dz = to.dz.rows.data + at;
  if (p.input_dt) g.d_input_dt = r.rows.by_channel.data() + at;
  g.da = sums.of(sequence, kWeight);
  g.dd = sums.of(sequence, kSkip);
  g.b.sums = r.rows.b_sums.data() + projection;
  g.c.sums = r.rows.c_sums.data() + projection;
  return g;
}

void scans(const core::SelectiveScan& p, const RecordedScan& r) {
  VectorGradients& v = r.rows.d;
  const std::int64_t seq = r.group.all->seq, count = r.group.count;
  const std::int64_t parts = parts_of(p.x.size), each = BackRows::sums_of(p, seq);
  std::fill_n(r.rows.b_sums.data(), count * each, 0.0f);
  std::fill_n(r.rows.c_sums.data(), count * each, 0.0f);
  const MatrixRows dy = v.whole(p.out);
  const Stored dx = v.stored(p.x, dy.step), d_dt = v.stored(p.dt, dy.step, 1), dz = v.stored(p.z, dy.step, 2);
  const ScanGradients to{dy, dx, d_dt, dz};
  const auto run = [&](std::int64_t begin, std::int64_t end, const SequenceSums& sums) {
    AlignedBuffer large;
    const std::int64_t floats = gradient_scratch_floats(r.packed.rule, seq, true);
    float* scratch = thread_scratch(Scratch::gradient, floats, &large);
    for (std::int64_t i = begin; i < end; ++i) {
      gradient_part(r.packed.rule, sequence_of(p, r, to, sums, i / parts), i % parts, scratch);
    }
  };
  GradientSums::each_part(r.sums, r.phase, count, parts, &r.rows.rows, run);
  if (p.activates) {
    float* const bias = r.sums.totals.data() + r.phase.weights[kBias].place.at;
    add_rows(d_dt.rows.data, r.group.rows(), dy.step, bias, 0, panels(p.dt.size));
  }
  for (const Stored& one : {dx, d_dt, dz}) v.settle(one);
}

// B and C of every row: the sums over the parts of the channels.
void projections(const core::SelectiveScan& p, const RecordedScan& r) {
  const BackRows& d = r.rows;
  VectorGradients& v = r.rows.d;
  const std::int64_t seq = r.group.all->seq;
  const std::int64_t parts = parts_of(p.x.size), floats = tiles(seq) * p.b.size * kTile;
  const Stored db = v.stored(p.b, VectorGradients::kAnyStep),
               dc = v.stored(p.c, VectorGradients::kAnyStep, 1);
  each_piece(r, [&](std::int64_t row, std::int64_t count) {
    for (const std::int64_t end = row + count; row < end; ++row) {
      const std::int64_t sequence = row / seq, t = row % seq;
      const std::int64_t at = sequence * parts * floats + t / kTile * p.b.size * kTile + t % kTile;
      const auto sum = [&](const float* sums, float* to) {
        for (std::int64_t n = 0; n < p.b.size; ++n) {
          to[n] = 0.0f;
          for (std::int64_t part = 0; part < parts; ++part) to[n] += sums[part * floats + n * kTile];
        }
      };
      sum(d.b_sums.data() + at, from(db.rows, row).data);
      sum(d.c_sums.data() + at, from(dc.rows, row).data);
    }
  });
  v.settle(db), v.settle(dc);
}

// All channels read it.
void input_dt(const core::SelectiveScan& p, const RecordedScan& r) {
  VectorGradients& v = r.rows.d;
  const std::int64_t step = v.whole(p.out).step;
  const Stored to = v.stored(p.input_dt, VectorGradients::kAnyStep);
  each_piece(r, [&](std::int64_t row, std::int64_t count) {
    for (const std::int64_t end = row + count; row < end; ++row)
      *from(to.rows, row).data = sum_of(r.rows.by_channel.data() + row * step, p.x.size);
  });
  v.settle(to);
}

}  // namespace

void phase_back(const core::SelectiveScan& p, const RecordedScan& recorded) {
  scans(p, recorded);
  projections(p, recorded);
  if (p.input_dt) input_dt(p, recorded);
}

}  // namespace exphil::host
