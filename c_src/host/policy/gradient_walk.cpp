#include "host/policy/gradient_walk.hpp"

#include <utility>
#include <variant>

#include "core/error.hpp"
#include "core/work/parallel.hpp"
#include "host/policy/gradient_kernels.hpp"

namespace exphil::host {

namespace {

// Sequences [first, first + count) of the group in one thread.
class BackwardWalk {
 public:
  // d: of each vector of the walk, the gradients of all rows.
  BackwardWalk(const WalkedPhases& phases, const BlockSums& sums, const std::vector<MatrixRows>& d,
               std::int64_t first, std::int64_t count)
      : p_(phases), n_(phases.network), sums_(sums), d_(d), first_(first), count_(count) {
    for (std::size_t i = p_.first; i <= p_.last; ++i) {
      const core::StateId id = core::state_of(p_.block[i]);
      d_states_.emplace_back(id == core::kNone ? 0 : count * state_floats(id));
    }
  }

  void run() {
    const std::int64_t seq = p_.group.all->seq;
    for (std::int64_t t = seq; t-- > 0;) {
      at_frame_ = rows_of_frame(p_.record.blocks[p_.block_index], first_, t, seq);
      d_frame_ = rows_of_frame(d_, first_, t, seq);
      for (index_ = p_.last + 1; index_-- > p_.first;) {
        before_ = p_.record.before[p_.block_index][index_];
        if (before_.data != nullptr)
          before_ = {before_.data + (first_ * seq + t) * before_.step, before_.step * seq};
        std::visit([this](const auto& phase) { back(phase); }, p_.block[index_]);
      }
    }
    for (index_ = p_.first; index_ <= p_.last; ++index_) write_d_state(core::state_of(p_.block[index_]));
  }

 private:
  MatrixRows rows(const core::Span& span, std::int64_t sequence = 0) const {
    return rows_at(at_frame_.data(), span, sequence);
  }
  MatrixRows d(const core::Span& span, std::int64_t sequence = 0) const {
    return rows_at(d_frame_.data(), span, sequence);
  }
  std::int64_t state_floats(core::StateId id) const {
    return n_.state(id).rows * padded(n_.state(id).columns);
  }
  // The gradient of a cell's states, {states, padded(units)}; after the last frame it is zero.
  float* d_state(core::StateId id, std::int64_t sequence) {
    std::size_t i = p_.first;
    while (core::state_of(p_.block[i]) != id) ++i;
    return d_states_[i - p_.first].data() + sequence * state_floats(id);
  }

  // What is left is the gradient of the states before the first frame.
  void write_d_state(core::StateId id) {
    if (id == core::kNone || p_.d_states == nullptr) return;
    const core::StatePart& part = n_.state(id);
    for (std::int64_t s = 0; s < count_; ++s) {
      float* const to = state_part(p_.d_states, p_.group, first_ + s, n_, id);
      const float* const from = d_state(id, s);
      for (std::int64_t row = 0; row < part.rows; ++row) {
        std::copy_n(from + row * padded(part.columns), part.columns, to + row * part.columns);
      }
    }
  }

  void back(const core::GatedCell& p) {
    for (std::int64_t s = 0; s < count_; ++s) {
      CellGradient gradient;
      gradient.before = rows_at(&before_, {0, 0, 0}, s);
      gradient.d_out = d(p.out, s);
      for (std::size_t g = 0; g < p.x.size(); ++g) {
        if (p.x[g]) gradient.d_x[g] = d(p.x[g], s);
        if (p.h[g]) gradient.d_h[g] = d(p.h[g], s);
      }
      gradient.d_states = d_state(p.state, s);
      cell_back(cell_of(p, at_frame_.data(), s, 1), gradient, 0, panels(p.out.size));
    }
  }

  void back(const core::Product& p) {
    const MatrixRows dy = d(p.out);
    if (p.relu) relu_back(rows(p.out).data, count_, dy.step, panels(p.out.size), dy.data);
    // Whole panels would reach beyond a part.
    if (!(p.in == n_.all_of(p.in.vector))) cannot();
    sums_.phases[index_].product.add_back(dy, count_, d(p.in));
  }

  void back(const core::Recall& p) {
    for (std::int64_t s = 0; s < count_; ++s) {
      float* const to = d_state(p.state, s);
      const float* const from = d(p.out, s).data;
      for (std::int64_t unit = 0; unit < p.out.size; ++unit) to[unit] += from[unit];
    }
  }

  template <class Other>
  void back(const Other&) {
    cannot();
  }

  [[noreturn]] static void cannot() {
    core::fail(core::ErrorKind::unsupported, "", "the gradient on the CPU cannot walk this policy's phases");
  }

  const WalkedPhases& p_;
  const core::Network& n_;
  const BlockSums& sums_;
  const std::vector<MatrixRows>& d_;
  const std::int64_t first_, count_;
  std::vector<AlignedBuffer> d_states_;  // of each phase, of each sequence
  // Of the frame, and of the phase: rows of the sequences.
  std::vector<MatrixRows> at_frame_, d_frame_;
  MatrixRows before_;
  std::size_t index_ = 0;
};

}  // namespace

void walk_back(const WalkedPhases& phases, const BlockSums& sums, VectorGradients& vectors) {
  std::vector<MatrixRows> d(phases.network.vectors.size());
  for (std::size_t i = phases.first; i <= phases.last; ++i) {
    std::vector<core::Span> spans = core::reads(phases.block[i]);
    spans.push_back(core::writes(phases.block[i]));
    for (const core::Span& span : spans) {
      vectors.whole(span);
      d[static_cast<std::size_t>(span.vector)] = vectors.own({span.vector, 0, 0});
    }
  }
  const std::int64_t count = phases.group.count;
  core::parallel_for(count, walked_together(count), [&](std::int64_t begin, std::int64_t end) {
    BackwardWalk(phases, sums, d, begin, end - begin).run();
  });
}

}  // namespace exphil::host
