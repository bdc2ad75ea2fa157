#include "host/policy/gradient_heads.hpp"

#include <algorithm>
#include <vector>

#include "core/work/parallel.hpp"
#include "host/recurrence/head_kernels.hpp"
#include "host/simd/thread_scratch.hpp"

namespace exphil::host {

namespace {

using Stored = VectorGradients::Stored;

// to: a group's key or query of every row is read by the heads of that group. parts: what each head of each
// sequence passes back, {count, heads, seq, ranks, padded(keys)}.
void add_heads(const core::HeadRecurrence& p, const KeptBuffer& parts, std::int64_t rows, std::int64_t seq,
               const MatrixRows& to) {
  const std::int64_t keys = p.keys(), width = padded(keys), each = p.heads() / p.groups;
  core::parallel_for(rows, kPieceRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * p.ranks * p.groups; i < end * p.ranks * p.groups; ++i) {
      const std::int64_t row = i / p.groups / p.ranks, rank = i / p.groups % p.ranks, group = i % p.groups;
      const std::int64_t first = (row / seq * p.heads() + group * each) * seq + row % seq;
      const float* part = parts.data() + (first * p.ranks + rank) * width;
      float* const sums = from(to, row).data + (rank * p.groups + group) * keys;
      std::fill_n(sums, keys, 0.0f);
      for (std::int64_t head = 0; head < each; ++head, part += seq * p.ranks * width) {
        for (std::int64_t k = 0; k < keys; ++k) sums[k] += part[k];
      }
    }
  });
}

// What the kernel passes back, and where it goes.
struct HeadBuffers {
  HeadBuffers(const core::HeadRecurrence& p, const SequenceGroup& group)
      : floats(group.all->seq * p.ranks * padded(p.keys())),
        d_key(group.count * p.heads() * floats),
        d_query(group.count * p.heads() * floats),
        d_key_before(p.value_before ? group.count * p.heads() * floats : 0) {}
  const std::int64_t floats;                // of a head of a sequence
  KeptBuffer d_key, d_query, d_key_before;  // heads_back stores whole rows
};

}  // namespace

void phase_back(const core::HeadRecurrence& p, const RecordedPhase& recorded) {
  const SequenceGroup& group = recorded.group;
  VectorGradients& v = recorded.vectors;
  const std::int64_t seq = group.all->seq, count = p.heads();
  HeadBuffers made(p, group);
  const MatrixRows dy = v.whole(p.out);
  std::vector<Stored> all;
  const core::Span spans[] = {p.value, p.rate,         p.decay,       p.key,
                              p.query, p.value_before, p.rate_before, p.key_before};
  for (const core::Span& span : spans) {
    all.push_back(span ? v.stored(span, VectorGradients::kAnyStep, all.size()) : Stored());
  }
  core::parallel_for(group.count * count, 1, [&](std::int64_t begin, std::int64_t end) {
    AlignedBuffer large;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t sequence = i / count, head = i % count, row = sequence * seq;
      const HeadRows rows = heads_of(p, recorded.packed, recorded.at, row, seq);
      HeadGradient g;
      g.initial = state_part(group.all->states, group, sequence, recorded.network, p.state);
      g.d_initial = recorded.d_state(p.state, sequence);
      const std::int64_t of_head = head * p.channels() * p.keys();
      g.initial = core::advanced(g.initial, of_head), g.d_initial = core::advanced(g.d_initial, of_head);
      g.d_out = from(dy, row), g.d_value = from(all[0].rows, row);
      g.d_rate = from(all[1].rows, row), g.d_decay = from(all[2].rows, row);
      g.d_key = made.d_key.data() + i * made.floats, g.d_query = made.d_query.data() + i * made.floats;
      if (p.value_before) {
        g.d_value_before = from(all[5].rows, row), g.d_rate_before = from(all[6].rows, row);
        g.d_key_before = made.d_key_before.data() + i * made.floats;
      }
      g.d_a = recorded.sum(kWeight, sequence), g.d_d = recorded.sum(kSkip, sequence);
      g.d_scale = recorded.sum(kBias, sequence);
      heads_back(rows, g, head,
                 thread_scratch(Scratch::gradient, head_gradient_scratch_floats(rows), &large));
    }
  });
  add_heads(p, made.d_key, group.rows(), seq, all[3].rows);
  add_heads(p, made.d_query, group.rows(), seq, all[4].rows);
  if (p.value_before) add_heads(p, made.d_key_before, group.rows(), seq, all[7].rows);
  for (const Stored& to : all) {
    if (to.span) v.settle(to);
  }
}

}  // namespace exphil::host
