#include "host/policy/gradient_heads.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"
#include "host/policy/head_kernels.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

using Stored = VectorGradients::Stored;

MatrixRows from(const MatrixRows& rows, std::int64_t row) {
  return {rows.data + row * rows.step, rows.step};
}

// to: a group's key or query of every row is read by the heads of that group. parts: what each head of each
// sequence passes back, {count, heads, seq, padded(keys)}.
void add_heads(const core::HeadRecurrence& p, const AlignedBuffer& parts, std::int64_t rows, std::int64_t seq,
               const MatrixRows& to) {
  const std::int64_t width = padded(p.keys()), each = p.heads() / p.groups;
  core::parallel_for(rows, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      float* const sums = from(to, row).data;
      for (std::int64_t i = 0; i < p.groups * p.keys(); ++i) {
        const std::int64_t first = (row / seq * p.heads() + i / p.keys() * each) * seq + row % seq;
        const float* part = parts.data() + first * width + i % p.keys();
        sums[i] = 0.0f;
        for (std::int64_t head = 0; head < each; ++head, part += seq * width) sums[i] += *part;
      }
    }
  });
}

}  // namespace

void heads_back(const RecordedHeads& heads, const std::array<float*, 2>& sums, std::int64_t row_floats,
                VectorGradients& v) {
  const core::HeadRecurrence& p = heads.phase;
  const SequenceGroup& group = heads.group;
  const std::int64_t seq = group.all->seq, count = p.heads(), width = padded(p.keys());
  AlignedBuffer d_keys(group.count * count * seq * width), d_queries(group.count * count * seq * width);
  const MatrixRows dy = v.whole(p.out);
  const auto stored = [&v](const core::Span& span, std::size_t buffer) {
    return v.stored(span, VectorGradients::kAnyStep, buffer);
  };
  const Stored d_value = stored(p.value, 0), d_rate = stored(p.rate, 1), d_decay = stored(p.decay, 2),
               d_key = stored(p.key, 3), d_query = stored(p.query, 4);
  core::parallel_for(group.count * count, 1, [&](std::int64_t begin, std::int64_t end) {
    AlignedBuffer large;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t sequence = i / count, head = i % count, row = sequence * seq;
      const HeadRows rows = heads_of(p, heads.packed, heads.at, row, seq);
      HeadGradient g;
      g.initial = state_part(group.all->states, group, sequence, heads.network, p.state);
      if (g.initial != nullptr) g.initial += head * p.channels() * p.keys();
      g.d_out = from(dy, row), g.d_value = from(d_value.rows, row);
      g.d_rate = from(d_rate.rows, row), g.d_decay = from(d_decay.rows, row);
      g.d_key = d_keys.data() + i * seq * width, g.d_query = d_queries.data() + i * seq * width;
      if (sums[0] != nullptr) g.d_a = sums[0] + sequence * row_floats;
      if (sums[1] != nullptr) g.d_d = sums[1] + sequence * row_floats;
      host::heads_back(rows, g, head,
                       thread_scratch(Scratch::gradient, head_gradient_scratch_floats(rows), &large));
    }
  });
  add_heads(p, d_keys, group.rows(), seq, d_key.rows),
      add_heads(p, d_queries, group.rows(), seq, d_query.rows);
  for (const Stored& to : {d_value, d_rate, d_decay, d_key, d_query}) v.settle(to);
}

}  // namespace exphil::host
