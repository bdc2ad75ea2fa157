#include <algorithm>
#include <cstdint>
#include <utility>

#include "cuda/policy/fold.hpp"
#include "cuda/policy/pack.hpp"

namespace exphil::cuda {
namespace {

class RowPacker {
 public:
  explicit RowPacker(const PolicyDims& dims) : dims_(dims), n_(dims.network()) {}
  std::vector<std::byte> take() { return std::move(bytes_); }

  RowLayout::Block block(const LoweredBlock& lowered, const std::vector<FoldedPhase>& folded) {
    RowLayout::Block made;
    for (std::size_t i = 0; i < lowered.size(); ++i) made.push_back(phase(lowered[i].phase, folded[i]));
    return made;
  }

  RowLayout::Part initial() {
    const std::vector<float> state = initial_state(dims_);
    return vector(static_cast<std::int64_t>(state.size()),
                  [&](std::int64_t i) { return state[static_cast<std::size_t>(i)]; });
  }

 private:
  RowLayout::Phase phase(const policy::Phase& at, const FoldedPhase& folded) {
    if (at.kind == policy::Kind::product) return product(n_.products[at.index], folded);
    if (!has_channels(at.kind)) return {};
    RowLayout::Phase made;
    const ChannelTable table(n_, at, ChannelTable::Of::weights);
    made.channels = vector(table.channels * table.each, [](std::int64_t) { return 0.0f; });
    float* const to = made.channels.in(bytes_.data());
    for (std::int64_t i = 0; i < table.channels * table.each; ++i) {
      const std::int64_t channel = i / table.each, value = i % table.each;
      to[table.at(channel, value, table.channels)] = folded.channels(channel, value);
    }
    const policy::Gate& gate = n_.gates[at.index];
    const std::int64_t values = at.kind == policy::Kind::gate       ? (gate.parts == 0 ? 0 : n_.size(gate.in))
                                : at.kind == policy::Kind::rotation ? size_of(n_, n_.rotations[at.index])
                                                                    : table.channels;
    made.values = vector(values, [&](std::int64_t i) { return padded(folded.values, i); });
    return made;
  }

  // Groups [k / 4][columns] of the rows of a product, and what belongs to the columns.
  RowLayout::Phase product(const policy::Product& product, const FoldedPhase& folded) {
    const int outputs = n_.rows(product), k_count = n_.size(product.in);
    const int columns = product.is_short ? outputs : policy::product_columns(outputs);
    RowLayout::Phase at;
    const int stored = product.diagonal ? 0 : k_count;
    at.weights = groups(columns, stored);
    unsigned char* const to = at.weights.in(bytes_.data());
    // So few groups at a time that neighbouring columns find their lines in the cache.
    for (int k = 0; k < stored; k += kStored) {
      const std::int64_t first = std::int64_t{k} * columns * n_.weight_bytes();
      for (int column = 0; column < outputs; ++column) {
        folded.store(column, k, std::min(kStored, k_count - k), to + first, column, columns);
      }
      if (n_.on_tensor_cores() && !product.is_short) order_for_tensor_cores(to + first, columns);
    }
    const auto of_columns = [&](bool any, auto value) {
      return vector(any ? columns : 0, [&](std::int64_t i) { return i < outputs ? value(i) : 0.0f; });
    };
    const auto bias = [&](std::int64_t row) { return folded.bias(row); };
    const auto scale = [&](std::int64_t row) { return folded.scale(row); };
    if (product.is_short) {
      const std::int64_t count = std::int64_t{columns} * (n_.row_scales() ? 2 : 1);
      at.bias = vector(count, [&](std::int64_t i) { return i < columns ? bias(i) : scale(i - columns); });
      return at;
    }
    at.bias = of_columns(true, bias);
    at.scale = of_columns(n_.row_scales(), scale);
    at.sums = of_columns(n_.centres(product) || product.diagonal,
                         [&](std::int64_t row) { return folded.sum(row); });
    return at;
  }

  // kStored k of all columns, in groups.
  static void order_for_tensor_cores(unsigned char* to, int columns) {
    auto* const weights = reinterpret_cast<float*>(to);
    const std::vector<float> groups(weights, weights + std::ptrdiff_t{kStored} * columns);
    for (int k = 0; k < kStored; ++k) {
      for (int column = 0; column < columns; ++column) {
        weights[policy::tensor_weight(k, column, columns)] =
            groups[static_cast<std::size_t>((k / 4 * columns + column) * 4 + k % 4)];
      }
    }
  }

  // ---- parts ----

  template <class Value>
  RowLayout::Part vector(std::int64_t count, Value value) {
    const RowLayout::Part part =
        reserve(RowLayout::Part(static_cast<long long>(bytes_.size()), count, kAlignment));
    float* to = part.in(bytes_.data());
    for (std::int64_t i = 0; i < count; ++i) to[i] = value(i);
    return part;
  }
  policy::MatrixPart groups(std::int64_t columns, int k_count) {
    return reserve(
        policy::MatrixPart(n_, static_cast<long long>(bytes_.size()), columns * k_count, kAlignment));
  }
  template <class Part>
  Part reserve(const Part& part) {
    bytes_.resize(static_cast<std::size_t>(policy::round_up_bytes(part.end(), kAlignment)));
    return part;
  }

  static constexpr long long kAlignment = 256;
  static constexpr int kStored = 16;
  const PolicyDims& dims_;
  const policy::Network& n_;
  std::vector<std::byte> bytes_;
};

}  // namespace

PackedRows pack_rows(const core::PolicyWeights& weights, const PolicyDims& dims) {
  RowPacker packer(dims);
  const Folded folded(weights, dims.lowered);
  const Lowered& lowered = dims.lowered;
  RowLayout layout;
  layout.input = packer.block(lowered.input, folded.input);
  for (std::size_t i = 0; i < folded.layers.size(); ++i) {
    layout.layers.push_back(packer.block(lowered.layers[i], folded.layers[i]));
  }
  layout.output = packer.block(lowered.output, folded.output);
  layout.initial = packer.initial();
  return {std::move(layout), packer.take()};
}

}  // namespace exphil::cuda
