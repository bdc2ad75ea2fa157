#include <algorithm>
#include <cstdint>

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

  std::vector<std::byte> run() {
    const auto share = static_cast<std::size_t>(layout_.bytes);
    std::vector<std::byte> packed(share * static_cast<std::size_t>(team_));  // zeros
    to_ = packed.data();
    section(lowered_.input, folded_.input, layout_.input, layout_.input_at, 0);
    for (int l = 0; l < n_.layers; ++l) {
      const auto at = static_cast<std::size_t>(l);
      section(lowered_.layers[at], folded_.layers[at], layout_.layer, layout_.layer_at(l),
              layout_.first_at(l));
    }
    section(lowered_.output, folded_.output, layout_.output, layout_.output_at, 0);
    return packed;
  }

 private:
  // The phases of a list. first_at: where the matrix of a layer's first product with one is.
  void section(const LoweredBlock& phases, const std::vector<FoldedPhase>& folded,
               const policy::TeamSection& section, long long at, long long first_at) const {
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const policy::Phase& phase = phases[i].phase;
      const policy::PhaseWeights& weights = section.phases[i];
      const bool apart = &section == &layout_.layer && static_cast<int>(i) == policy::first_product(n_);
      for_each_block([&](int rank, std::byte* block) {
        if (phase.kind == policy::Kind::product) {
          matrix(folded[i], phase.index, rank,
                 apart ? layout_.first.in(block + first_at) : weights.matrix.in(block + at));
          rows(folded[i], phase.index, weights.rows, rank, block + at);
        } else if (phase.kind == policy::Kind::gate) {
          every_channel(folded[i], weights, ChannelTable(n_, phase, ChannelTable::Of::weights), block + at);
        } else if (phase.kind == policy::Kind::rotation) {
          heads(folded[i], weights, ChannelTable(n_, phase, ChannelTable::Of::weights), rank, block + at);
        } else if (has_channels(phase.kind)) {
          channels(folded[i], weights, ChannelTable(n_, phase, ChannelTable::Of::weights), rank, block + at);
        }
      });
    }
  }
  template <class Pack>
  void for_each_block(Pack pack) const {
    for (int rank = 0; rank < team_; ++rank) pack(rank, to_ + rank * layout_.bytes);
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
  void matrix(const FoldedPhase& folded, int product, int rank, unsigned char* to) const {
    const bool is_short = plan_.splits[product] == policy::Split::own;
    const int rows = policy::weight_rows(n_, plan_, team_, product);
    const int columns = policy::weight_columns(n_, plan_, team_, product);
    const int first = plan_.splits[product] == policy::Split::depth ? rank * columns : 0;
    const int together = is_short ? columns : kSegment, tasks = rows * (columns / together);
    for (int task = 0; task < tasks; ++task) {
      const std::int64_t row = row_of(product, rank, task % rows);
      folded.store(row, first + task / rows * together, together, to, task, tasks);
    }
  }

  // The vectors of a product's rows, as far as the layout has them.
  void rows(const FoldedPhase& folded, int product, const policy::RowVectors& at, int rank,
            std::byte* to) const {
    for (int i = 0; i < policy::weight_rows(n_, plan_, team_, product); ++i) {
      const std::int64_t row = row_of(product, rank, i);
      if (at.bias.count > 0) at.bias.in(to)[i] = folded.bias(row);
      if (at.scale.count > 0) at.scale.in(to)[i] = folded.scale(row);
      if (at.sums.count > 0) at.sums.in(to)[i] = folded.sum(row);
    }
  }

  // What the block's own channels have.
  void channels(const FoldedPhase& from, const policy::PhaseWeights& at, const ChannelTable& table, int rank,
                std::byte* to) const {
    const auto own = static_cast<int>(at.vector.count);
    for (int i = 0; i < own; ++i) {
      const std::int64_t channel = std::int64_t{rank} * own + i;
      for (int k = 0; k < table.each; ++k)
        at.channels.in(to)[table.at(i, k, own)] = from.channels(channel, k);
      at.vector.in(to)[i] = padded(from.values, channel);
    }
  }

  // What every block has of all channels.
  static void every_channel(const FoldedPhase& from, const policy::PhaseWeights& at,
                            const ChannelTable& table, std::byte* to) {
    for (long long i = 0; i < at.channels.count; ++i)
      at.channels.in(to)[i] = from.channels(i / table.each, i % table.each);
    for (long long i = 0; i < at.vector.count; ++i) at.vector.in(to)[i] = padded(from.values, i);
  }

  // What the heads of the block's channels have.
  void heads(const FoldedPhase& from, const policy::PhaseWeights& at, const ChannelTable& table, int rank,
             std::byte* to) const {
    for (long long i = 0; i < at.channels.count; ++i) {
      const std::int64_t head = policy::first_head(n_, team_, rank) + i / table.each;
      at.channels.in(to)[i] = from.channels(std::min(head, table.channels - 1), i % table.each);
    }
    for (long long i = 0; i < at.vector.count; ++i) at.vector.in(to)[i] = padded(from.values, i);
  }

  const policy::Network& n_;
  const Lowered& lowered_;
  const Folded folded_;
  const policy::TeamPlan plan_;
  const int team_;
  const policy::TeamLayout layout_;
  std::byte* to_ = nullptr;
};

}  // namespace

std::vector<std::byte> pack_team(const core::PolicyWeights& weights, const PolicyDims& dims, int team) {
  return TeamPacker(weights, dims, team).run();
}

}  // namespace exphil::cuda
