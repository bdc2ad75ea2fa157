#include <algorithm>
#include <cstdint>
#include <utility>

#include "cuda/policy/fold.hpp"
#include "cuda/policy/pack.hpp"
#include "cuda/policy/stored.hpp"

namespace exphil::cuda {
namespace {

// The n-th phase of a kind in a block.
std::size_t nth(const LoweredBlock& block, policy::Kind kind, int n) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (block[i].phase.kind == kind && n-- == 0) return i;
  }
  return block.size();
}

class RowPacker {
 public:
  explicit RowPacker(const PolicyDims& dims) : dims_(dims) {}
  std::vector<std::byte> take() { return std::move(bytes_); }

  // Groups [k / 4][columns] of the rows of a product, and what belongs to the columns.
  RowLayout::Matrix matrix(const StoredProduct& from, const policy::Product& product) {
    const policy::Network& n = dims_.network();
    const int outputs = n.rows(product), k_count = n.size(product.in);
    const int columns = policy::product_columns(outputs);
    RowLayout::Matrix at;
    at.weights = groups(columns, k_count);
    unsigned char* const to = at.weights.in(bytes_.data());
    for (int column = 0; column < outputs; ++column) {
      for (int k = 0; k < k_count; ++k) {
        from.store(column, k, to, (std::int64_t{k / 4} * columns + column) * 4 + k % 4);
      }
    }
    const auto of_columns = [&](bool any, auto value) {
      return vector(any ? columns : 0, [&](std::int64_t i) { return i < outputs ? value(i) : 0.0f; });
    };
    at.bias = of_columns(true, [&](std::int64_t row) { return from.bias(row); });
    at.scale = of_columns(n.row_scales(), [&](std::int64_t row) { return from.scale(row); });
    at.sums = of_columns(n.centres(product), [&](std::int64_t row) { return from.sum(row); });
    return at;
  }
  // The same of the n-th product of a block.
  RowLayout::Matrix matrix(const LoweredBlock& block, const std::vector<FoldedPhase>& folded, int n) {
    const std::size_t at = nth(block, policy::Kind::product, n);
    return matrix(stored(block, folded, at), dims_.network().products[block[at].phase.index]);
  }
  template <class Value>
  RowLayout::Part vector(std::int64_t count, Value value) {
    const RowLayout::Part part =
        reserve(RowLayout::Part(static_cast<long long>(bytes_.size()), count, kAlignment));
    float* to = part.in(bytes_.data());
    for (std::int64_t i = 0; i < count; ++i) to[i] = value(i);
    return part;
  }

  RowLayout::Layer layer(const LoweredBlock& block, const std::vector<FoldedPhase>& folded) {
    const int inner = dims_.inner(), state = dims_.state();
    const FoldedPhase& conv = folded[nth(block, policy::Kind::convolution, 0)];
    const FoldedPhase& scan = folded[nth(block, policy::Kind::scan, 0)];
    const StoredProduct dt = stored(block, folded, nth(block, policy::Kind::product, 2));
    RowLayout::Layer at;
    at.in_proj = matrix(block, folded, 0);
    at.conv = vector(std::int64_t{dims_.taps()} * inner,
                     [&](std::int64_t i) { return conv.channels(i % inner, i / inner); });
    at.conv_bias = vector(inner, [&](std::int64_t i) { return padded(conv.values, i); });
    at.x_proj = matrix(block, folded, 1);
    at.dt_proj = groups(inner, dims_.rank());
    for (std::int64_t i = 0; i < std::int64_t{dims_.rank()} * inner; ++i) {
      dt.store(i / 4 % inner, i / 4 / inner * 4 + i % 4, at.dt_proj.in(bytes_.data()), i);
    }
    at.dt_bias = vector(std::int64_t{inner} * (dims_.row_scales() ? 2 : 1),
                        [&](std::int64_t i) { return i < inner ? dt.bias(i) : dt.scale(i - inner); });
    at.a = vector(std::int64_t{inner} * state,
                  [&](std::int64_t i) { return scan.channels(i / state, i % state); });
    at.d = vector(inner, [&](std::int64_t i) { return padded(scan.values, i); });
    at.out_proj = matrix(block, folded, 3);
    return at;
  }

 private:
  StoredProduct stored(const LoweredBlock& block, const std::vector<FoldedPhase>& folded,
                       std::size_t at) const {
    return StoredProduct(folded[at], dims_.network(), dims_.network().products[block[at].phase.index],
                         dims_.config.precision);
  }
  policy::MatrixPart groups(std::int64_t columns, int k_count) {
    return reserve(
        policy::MatrixPart(dims_, static_cast<long long>(bytes_.size()), columns * k_count, kAlignment));
  }
  template <class Part>
  Part reserve(const Part& part) {
    bytes_.resize(static_cast<std::size_t>(policy::round_up_bytes(part.end(), kAlignment)));
    return part;
  }

  static constexpr long long kAlignment = 256;
  const PolicyDims& dims_;
  std::vector<std::byte> bytes_;
};

}  // namespace

PackedRows pack_rows(const core::PolicyWeights& weights, const PolicyDims& dims) {
  RowPacker packer(dims);
  const Folded folded(weights, dims.lowered);
  const Lowered& lowered = dims.lowered;
  const bool deep = dims.d_hidden > 0;
  RowLayout layout;
  layout.input = packer.matrix(lowered.input, folded.input, 0);
  layout.head = packer.matrix(lowered.output, folded.output, deep ? 1 : 0);
  if (deep) layout.hidden = packer.matrix(lowered.output, folded.output, 0);
  for (std::size_t i = 0; i < folded.layers.size(); ++i) {
    layout.layers.push_back(packer.layer(lowered.layers[i], folded.layers[i]));
  }
  return {std::move(layout), packer.take()};
}

}  // namespace exphil::cuda
