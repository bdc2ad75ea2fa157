#include <cstdint>

#include "cuda/policy/fold.hpp"
#include "cuda/policy/pack.hpp"
#include "cuda/policy/stored.hpp"

namespace exphil::cuda {
namespace {

using policy::kSegment;

// The weights of `rows` rows and `segments` segments in the order of their tasks (policy/layout.cuh).
// row_of and column_of: the matrix's row and column for those of the tasks.
template <class RowOf, class ColumnOf>
void write_tasks(const StoredProduct& matrix, unsigned char* to, int rows, int segments, RowOf row_of,
                 ColumnOf column_of) {
  const int tasks = rows * segments;
  for (int task = 0; task < tasks; ++task) {
    for (int k = 0; k < kSegment; ++k) {
      matrix.store(row_of(task % rows), column_of(task / rows * kSegment + k), to,
                   (std::int64_t{k / 4} * tasks + task) * 4 + k % 4);
    }
  }
}

// The vectors of `count` rows, as far as the layout has them.
template <class RowOf>
void write_rows(const policy::RowVectors& at, const StoredProduct& matrix, std::byte* to, int count,
                RowOf row_of) {
  for (int i = 0; i < count; ++i) {
    const std::int64_t row = row_of(i);
    if (at.bias.count > 0) at.bias.in(to)[i] = matrix.bias(row);
    if (at.scale.count > 0) at.scale.in(to)[i] = matrix.scale(row);
    if (at.sums.count > 0) at.sums.in(to)[i] = matrix.sum(row);
  }
}

// The n-th phase of a kind in a block.
std::size_t nth(const LoweredBlock& block, policy::Kind kind, int n) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (block[i].phase.kind == kind && n-- == 0) return i;
  }
  return block.size();
}

class TeamPacker {
 public:
  TeamPacker(const Folded& folded, const PolicyDims& dims, int team)
      : folded_(folded), dims_(dims), layout_(dims, team), share_(layout_.share) {}

  // to: layout.bytes zeros
  void share(int rank, std::byte* to) const {
    const policy::InputSection& input = layout_.input;
    matrix(stored(dims_.lowered.input, folded_.input, 0), input.weight, input.rows, share_.rows,
           dims_.input(), rank * share_.rows, to + layout_.input_at);
    const policy::HeadSection& head = layout_.head;
    const bool deep = dims_.d_hidden > 0;
    matrix(stored(dims_.lowered.output, folded_.output, deep ? 1 : 0), head.weight, head.rows, share_.heads,
           dims_.head_depth(), rank * share_.heads, to + layout_.head_at);
    if (deep) {
      matrix(stored(dims_.lowered.output, folded_.output, 0), head.hidden, head.hidden_rows, share_.hidden,
             dims_.model(), rank * share_.hidden, to + layout_.head_at);
    }
    for (int l = 0; l < dims_.layers(); ++l) {
      const auto at = static_cast<std::size_t>(l);
      const LoweredBlock& block = dims_.lowered.layers[at];
      channels(block, folded_.layers[at], rank, to + layout_.layer_at(l));
      products(block, folded_.layers[at], rank, to + layout_.layer_at(l));
      in_proj(block, folded_.layers[at], rank, l, to);
    }
  }

 private:
  StoredProduct stored(const LoweredBlock& block, const std::vector<FoldedPhase>& folded, int n) const {
    const std::size_t at = nth(block, policy::Kind::product, n);
    return StoredProduct(folded[at], dims_.network(), dims_.network().products[block[at].phase.index],
                         dims_.config.precision);
  }

  // `rows` rows of a matrix from `first` on, all columns, and what belongs to them.
  static void matrix(const StoredProduct& from, const policy::MatrixPart& weight,
                     const policy::RowVectors& vectors, int rows, int depth, int first, std::byte* to) {
    const auto row_of = [first](int row) { return std::int64_t{first} + row; };
    write_tasks(from, weight.in(to), rows, depth / kSegment, row_of, [](int k) { return k; });
    write_rows(vectors, from, to, rows, row_of);
  }

  void channels(const LoweredBlock& block, const std::vector<FoldedPhase>& folded, int rank,
                std::byte* to) const {
    const policy::LayerSection& at = layout_.layer;
    const int own = share_.own, state = dims_.state();
    const std::int64_t first = std::int64_t{rank} * own;
    const FoldedPhase& conv = folded[nth(block, policy::Kind::convolution, 0)];
    const FoldedPhase& scan = folded[nth(block, policy::Kind::scan, 0)];
    const StoredProduct dt = stored(block, folded, 2);
    for (int i = 0; i < own; ++i) {
      const std::int64_t channel = first + i;
      for (int t = 0; t < dims_.taps(); ++t) at.conv.in(to)[t * own + i] = conv.channels(channel, t);
      at.conv_bias.in(to)[i] = padded(conv.values, channel);
      for (int k = 0; k < dims_.rank(); ++k) {
        dt.store(channel, k, at.dt_proj.in(to), (k / 4 * own + i) * 4 + k % 4);
      }
      for (int n = 0; n < state; ++n) at.a.in(to)[i * state + n] = scan.channels(channel, n);
      at.d.in(to)[i] = padded(scan.values, channel);
    }
    write_rows(at.dt_rows, dt, to, own, [first](int i) { return first + i; });
  }

  void products(const LoweredBlock& block, const std::vector<FoldedPhase>& folded, int rank,
                std::byte* to) const {
    const policy::LayerSection& at = layout_.layer;
    const std::int64_t first_channel = std::int64_t{rank} * share_.own;
    const auto row_of = [](int row) { return std::int64_t{row}; };
    const StoredProduct x_proj = stored(block, folded, 1);
    write_tasks(x_proj, at.x_proj.in(to), dims_.projection(), share_.own_segments, row_of,
                [first_channel](int k) { return first_channel + k; });
    write_rows(at.projection_rows, x_proj, to, dims_.projection(), row_of);
    matrix(stored(block, folded, 3), at.out_proj, at.out_rows, share_.rows, dims_.inner(), rank * share_.rows,
           to);
  }

  void in_proj(const LoweredBlock& block, const std::vector<FoldedPhase>& folded, int rank, int l,
               std::byte* to) const {
    const int own = share_.own;
    const auto row_of = [this, own, rank](int row) {
      const std::int64_t channel = std::int64_t{rank} * own + row % own;
      return channel < dims_.inner() ? row / own * std::int64_t{dims_.inner()} + channel : -1;
    };
    const StoredProduct in = stored(block, folded, 0);
    write_tasks(in, layout_.in_proj.weight.in(to + layout_.in_proj_at(l)), 2 * own, dims_.model() / kSegment,
                row_of, [](int k) { return k; });
    write_rows(layout_.layer.in_rows, in, to + layout_.layer_at(l), 2 * own, row_of);
  }

  const Folded& folded_;
  const PolicyDims& dims_;
  const policy::TeamLayout layout_;
  const policy::Share& share_;
};

}  // namespace

std::vector<std::byte> pack_team(const core::PolicyWeights& weights, const PolicyDims& dims, int team) {
  const auto share = static_cast<std::size_t>(policy::TeamLayout(dims, team).bytes);
  std::vector<std::byte> packed(share * static_cast<std::size_t>(team));
  const Folded folded(weights, dims.lowered);
  const TeamPacker packer(folded, dims, team);
  for (int rank = 0; rank < team; ++rank)
    packer.share(rank, packed.data() + static_cast<std::size_t>(rank) * share);
  return packed;
}

}  // namespace exphil::cuda
