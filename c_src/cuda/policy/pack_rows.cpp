#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/work/parallel.hpp"
#include "cuda/policy/fold.hpp"
#include "cuda/policy/pack.hpp"

namespace exphil::cuda {
namespace {

constexpr long long kAlignment = 256;
constexpr int kStored = 16;  // k of a product at a time: as many as tensor cores take in one order

long long end_of(long long end) {
  return policy::round_up_bytes(end, kAlignment);
}

// Places one part after another.
class RowPlanner {
 public:
  explicit RowPlanner(const policy::Network& n) : n_(n) {}

  RowLayout run(const Lowered& lowered, std::int64_t initial) {
    RowLayout layout;
    layout.input = block(lowered.input);
    for (const LoweredBlock& layer : lowered.layers) layout.layers.push_back(block(layer));
    layout.output = block(lowered.output);
    layout.initial = vector(initial);
    layout.bytes = static_cast<std::size_t>(end_);
    return layout;
  }

 private:
  RowLayout::Block block(const LoweredBlock& lowered) {
    RowLayout::Block made;
    for (const LoweredPhase& phase : lowered) {
      const policy::Phase& at = phase.phase;
      made.push_back(at.kind == policy::Kind::product ? product(n_.products[at.index])
                     : has_channels(at.kind)          ? channels(at)
                                                      : RowLayout::Phase{});
    }
    return made;
  }

  RowLayout::Phase channels(const policy::Phase& at) {
    RowLayout::Phase made;
    const ChannelTable table(n_, at, ChannelTable::Of::weights);
    made.channels = vector(table.channels * table.each);
    const policy::Gate& gate = n_.gates[at.index];
    made.values = vector(at.kind == policy::Kind::gate       ? (gate.parts == 0 ? 0 : n_.size(gate.in))
                         : at.kind == policy::Kind::rotation ? size_of(n_, n_.rotations[at.index])
                                                             : table.channels);
    return made;
  }

  RowLayout::Phase product(const policy::Product& product) {
    const int outputs = n_.rows(product);
    const int columns = product.is_short ? outputs : policy::product_columns(outputs);
    RowLayout::Phase made;
    made.weights = policy::MatrixPart(n_, end_, 1LL * columns * (product.diagonal ? 0 : n_.size(product.in)),
                                      kAlignment);
    end_ = end_of(made.weights.end());
    if (product.is_short) {
      made.bias = vector(1LL * columns * (n_.row_scales() ? 2 : 1));
      return made;
    }
    made.bias = vector(columns);
    made.scale = vector(n_.row_scales() ? columns : 0);
    made.sums = vector(n_.centres(product) || product.diagonal ? columns : 0);
    return made;
  }

  RowLayout::Part vector(std::int64_t count) {
    const RowLayout::Part part(end_, count, kAlignment);
    end_ = end_of(part.end());
    return part;
  }

  const policy::Network& n_;
  long long end_ = 0;
};

// Writes what the planner has placed, piece by piece. Every piece clears the padding behind it.
class RowPacker {
 public:
  RowPacker(const policy::Network& n, std::byte* to) : n_(n), to_(to) {}

  void add(const LoweredBlock& lowered, const std::vector<FoldedPhase>& folded,
           const RowLayout::Block& block) {
    for (std::size_t i = 0; i < lowered.size(); ++i) {
      const Piece piece{&lowered[i].phase, &folded[i], &block[i], kVectors};
      if (has_channels(piece.phase->kind)) pieces_.push_back(piece);
      if (piece.phase->kind != policy::Kind::product) continue;
      pieces_.push_back(piece);
      const policy::Product& product = n_.products[piece.phase->index];
      for (int k = 0; !product.diagonal && k < n_.size(product.in); k += kStored) {
        pieces_.push_back(piece);
        pieces_.back().k = k;
      }
    }
  }
  void run() const {
    core::parallel_for(
        static_cast<std::int64_t>(pieces_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
          for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
            const Piece& piece = pieces_[i];
            piece.k != kVectors                          ? matrix(piece)
            : piece.phase->kind == policy::Kind::product ? rows(piece)
                                                         : channels(piece);
          }
        });
  }
  template <class Value>
  void vector(const RowLayout::Part& part, Value value) const {
    float* const to = part.in(to_);
    for (std::int64_t i = 0; i < part.count; ++i) to[i] = value(i);
    clear(part.end(), end_of(part.end()));
  }

 private:
  // Of a product: kStored of its k from `k` on, or else its vectors.
  static constexpr int kVectors = -1;
  struct Piece {
    const policy::Phase* phase;
    const FoldedPhase* folded;
    const RowLayout::Phase* to;
    int k;
  };

  // Groups [k / 4][columns] of the rows of a product.
  void matrix(const Piece& piece) const {
    const policy::Product& product = n_.products[piece.phase->index];
    const int outputs = n_.rows(product), k_count = n_.size(product.in);
    const int columns = product.is_short ? outputs : policy::product_columns(outputs);
    const policy::MatrixPart& part = piece.to->weights;
    const auto at = [&](int k) { return part.at + 1LL * k * columns * n_.weight_bytes(); };
    const int end = std::min(piece.k + kStored, k_count);
    clear(at(piece.k), end == k_count ? end_of(part.end()) : at(end));
    auto* const to = reinterpret_cast<unsigned char*>(to_ + at(piece.k));
    if (n_.on_tensor_cores() && !product.is_short) {
      for_tensor_cores(*piece.folded, piece.k, outputs, columns, reinterpret_cast<float*>(to));
    } else {
      piece.folded->store(0, outputs, piece.k, end - piece.k, to, 0, columns);
    }
  }

  static void for_tensor_cores(const FoldedPhase& folded, int first, int outputs, int columns, float* to) {
    float weights[kStored];
    for (int column = 0; column < outputs; ++column) {
      folded.read(column, first, kStored, weights);
      for (int k = 0; k < kStored; ++k) to[policy::tensor_weight(k, column, columns)] = weights[k];
    }
  }

  // What belongs to a product's rows.
  void rows(const Piece& piece) const {
    const policy::Product& product = n_.products[piece.phase->index];
    const FoldedPhase& folded = *piece.folded;
    const std::int64_t outputs = n_.rows(product);
    const auto of_columns = [&](const RowLayout::Part& part, auto value) {
      vector(part, [&](std::int64_t i) { return i < outputs ? value(i) : 0.0f; });
    };
    const auto bias = [&](std::int64_t row) { return folded.bias(row); };
    const auto scale = [&](std::int64_t row) { return folded.scale(row); };
    if (product.is_short) {
      return vector(piece.to->bias,
                    [&](std::int64_t i) { return i < outputs ? bias(i) : scale(i - outputs); });
    }
    of_columns(piece.to->bias, bias);
    of_columns(piece.to->scale, scale);
    of_columns(piece.to->sums, [&](std::int64_t row) { return folded.sum(row); });
  }

  void channels(const Piece& piece) const {
    const ChannelTable table(n_, *piece.phase, ChannelTable::Of::weights);
    const RowLayout::Part& part = piece.to->channels;
    std::vector<float> values(static_cast<std::size_t>(table.each));
    for (std::int64_t channel = 0; channel < table.channels; ++channel) {
      piece.folded->channels.read(channel, 0, table.each, values.data());
      for (std::int64_t k = 0; k < table.each; ++k) {
        part.in(to_)[table.at(channel, k, table.channels)] = values[static_cast<std::size_t>(k)];
      }
    }
    clear(part.end(), end_of(part.end()));
    vector(piece.to->values, [&](std::int64_t i) { return padded(piece.folded->values, i); });
  }

  void clear(long long begin, long long end) const {
    std::memset(to_ + begin, 0, static_cast<std::size_t>(end - begin));
  }

  const policy::Network& n_;
  std::byte* const to_;
  std::vector<Piece> pieces_;
};

}  // namespace

RowLayout row_layout(const PolicyDims& dims) {
  const auto initial = static_cast<std::int64_t>(initial_state(dims).size());
  return RowPlanner(dims.network()).run(dims.lowered, initial);
}

void pack_rows(const core::PolicyWeights& weights, const PolicyDims& dims, const RowLayout& layout,
               std::byte* to) {
  const Lowered& lowered = dims.lowered;
  const Folded folded(weights, lowered);
  RowPacker packer(dims.network(), to);
  packer.add(lowered.input, folded.input, layout.input);
  for (std::size_t i = 0; i < layout.layers.size(); ++i) {
    packer.add(lowered.layers[i], folded.layers[i], layout.layers[i]);
  }
  packer.add(lowered.output, folded.output, layout.output);
  packer.run();
  const std::vector<float> initial = initial_state(dims);
  packer.vector(layout.initial, [&](std::int64_t i) { return initial[static_cast<std::size_t>(i)]; });
}

}  // namespace exphil::cuda
