#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/work/parallel.hpp"
#include "cuda/policy/fold.hpp"
#include "cuda/policy/pack.hpp"
#include "kernels/policy/team_layout.cuh"

namespace exphil::cuda {
namespace {

using policy::kSegment;

// The weights of one block of the team after another.
class TeamPacker {
 public:
  TeamPacker(const core::PolicyWeights& weights, const PolicyDims& dims, int team)
      : n_(dims.network()),
        lowered_(dims.lowered),
        folded_(weights, dims.lowered),
        plan_(n_),
        team_(team),
        layout_(n_, plan_, team) {}

  void run(std::byte* to) const {
    const auto share = static_cast<std::size_t>(layout_.bytes);
    core::parallel_for(team_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto rank = static_cast<int>(begin); rank < static_cast<int>(end); ++rank) {
        std::byte* const block = to + share * static_cast<std::size_t>(rank);
        std::memset(block, 0, share);
        pack(rank, block);
      }
    });
  }

 private:
  void pack(int rank, std::byte* block) const {
    section(lowered_.input, folded_.input, layout_.input, rank, block + layout_.input_at, nullptr);
    for (int l = 0; l < n_.layers; ++l) {
      const auto at = static_cast<std::size_t>(l);
      section(lowered_.layers[at], folded_.layers[at], layout_.layer, rank, block + layout_.layer_at(l),
              block + layout_.first_at(l));
    }
    section(lowered_.output, folded_.output, layout_.output, rank, block + layout_.output_at, nullptr);
  }

  // The phases of a list. first: where the matrix of a layer's first product with one is.
  void section(const LoweredBlock& phases, const std::vector<FoldedPhase>& folded,
               const policy::TeamSection& section, int rank, std::byte* to, std::byte* first) const {
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const policy::Phase& phase = phases[i].phase;
      const policy::PhaseWeights& weights = section.phases[i];
      if (phase.kind == policy::Kind::product) {
        const bool apart = first != nullptr && static_cast<int>(i) == policy::first_product(n_);
        product(folded[i], phase.index, rank, apart ? layout_.first.in(first) : weights.matrix.in(to),
                weights.rows, to);
      } else if (phase.kind == policy::Kind::gate) {
        every_channel(folded[i], weights, ChannelTable(n_, phase, ChannelTable::Of::weights), to);
      } else if (phase.kind == policy::Kind::rotation) {
        heads(folded[i], weights, ChannelTable(n_, phase, ChannelTable::Of::weights), rank, to);
      } else if (has_channels(phase.kind)) {
        channels(folded[i], weights, ChannelTable(n_, phase, ChannelTable::Of::weights), rank, to);
      }
    }
  }

  void product(const FoldedPhase& folded, int product, int rank, unsigned char* matrix_to,
               const policy::RowVectors& at, std::byte* to) const {
    std::vector<std::int64_t> rows;
    for (int i = 0; i < policy::weight_rows(n_, plan_, team_, product); ++i)
      rows.push_back(row_of(product, rank, i));
    matrix(folded, product, rank, rows, matrix_to);
    for (std::size_t i = 0; i < rows.size(); ++i) {  // what the layout has of their vectors
      if (at.bias.count > 0) at.bias.in(to)[i] = folded.bias(rows[i]);
      if (at.scale.count > 0) at.scale.in(to)[i] = folded.scale(rows[i]);
      if (at.sums.count > 0) at.sums.in(to)[i] = folded.sum(rows[i]);
    }
  }

  // The row of a product (FoldedPhase) for a block's row; -1 for padding.
  std::int64_t row_of(int product, int rank, int row) const {
    const policy::Product& p = n_.products[product];
    if (plan_.splits[product] == policy::Split::depth) return row;
    for (int o = 0; o < p.outputs; ++o) {
      const int vector = p.out[o].vector, rows = policy::block_rows(n_, plan_, team_, vector);
      if (row < rows) {
        const std::int64_t place = std::int64_t{rank} * rows + row;
        return place < n_.size(vector) ? policy::first_row(n_, p, o) + place : -1;
      }
      row -= rows;
    }
    return -1;
  }

  // In the order of the tasks, or of a short product's threads.
  void matrix(const FoldedPhase& folded, int product, int rank, const std::vector<std::int64_t>& rows,
              unsigned char* to) const {
    const bool is_short = plan_.splits[product] == policy::Split::own;
    const int columns = policy::weight_columns(n_, plan_, team_, product);
    const int first = plan_.splits[product] == policy::Split::depth ? rank * columns : 0;
    const int together = is_short ? columns : kSegment;
    const auto count = static_cast<std::int64_t>(rows.size()), tasks = count * (columns / together);
    for (std::int64_t task = 0; task < tasks; task += count) {
      const std::int64_t column = first + task / count * together;
      for_each_run(rows, [&](std::int64_t at, std::int64_t row, std::int64_t run) {
        folded.store(row, run, column, together, to, task + at, tasks);
      });
    }
  }

  // Calls visit(at, row, count): rows [at, at + count) of the block are rows of the product from `row` on.
  template <class Visit>
  static void for_each_run(const std::vector<std::int64_t>& rows, Visit visit) {
    for (std::size_t at = 0, end = 0; at < rows.size(); at = end) {
      do {
        ++end;
      } while (end < rows.size() && rows[at] >= 0 && rows[end] == rows[end - 1] + 1);
      visit(static_cast<std::int64_t>(at), rows[at], static_cast<std::int64_t>(end - at));
    }
  }

  // What the block's own channels have.
  void channels(const FoldedPhase& from, const policy::PhaseWeights& at, const ChannelTable& table, int rank,
                std::byte* to) const {
    const auto own = static_cast<int>(at.vector.count);
    std::vector<float> values(static_cast<std::size_t>(table.each));
    for (int i = 0; i < own; ++i) {
      const std::int64_t channel = std::int64_t{rank} * own + i;
      from.channels.read(channel, 0, table.each, values.data());
      for (int k = 0; k < table.each; ++k)
        at.channels.in(to)[table.at(i, k, own)] = values[static_cast<std::size_t>(k)];
      at.vector.in(to)[i] = padded(from.values, channel);
    }
  }

  // What every block has of all channels.
  static void every_channel(const FoldedPhase& from, const policy::PhaseWeights& at,
                            const ChannelTable& table, std::byte* to) {
    for (long long i = 0; i < at.channels.count; i += table.each)
      from.channels.read(i / table.each, 0, table.each, at.channels.in(to) + i);
    for (long long i = 0; i < at.vector.count; ++i) at.vector.in(to)[i] = padded(from.values, i);
  }

  // What the heads of the block's channels have.
  void heads(const FoldedPhase& from, const policy::PhaseWeights& at, const ChannelTable& table, int rank,
             std::byte* to) const {
    for (long long i = 0; i < at.channels.count; i += table.each) {
      const std::int64_t head = policy::first_head(n_, team_, rank) + i / table.each;
      from.channels.read(std::min(head, table.channels - 1), 0, table.each, at.channels.in(to) + i);
    }
    for (long long i = 0; i < at.vector.count; ++i) at.vector.in(to)[i] = padded(from.values, i);
  }

  const policy::Network& n_;
  const Lowered& lowered_;
  const Folded folded_;
  const policy::TeamPlan plan_;
  const int team_;
  const policy::TeamLayout layout_;
};

}  // namespace

std::size_t team_bytes(const PolicyDims& dims, int team) {
  const policy::Network& n = dims.network();
  return static_cast<std::size_t>(policy::TeamLayout(n, policy::TeamPlan(n), team).bytes * team);
}

void pack_team(const core::PolicyWeights& weights, const PolicyDims& dims, int team, std::byte* to) {
  TeamPacker(weights, dims, team).run(to);
}

}  // namespace exphil::cuda
