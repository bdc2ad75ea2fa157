#include "cuda/policy/pack.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cuda/policy/fold.hpp"
#include "cuda/policy/stored.hpp"

namespace exphil::cuda {
namespace {

using policy::kSegment;

// The checkpoint's row of x_proj for row `row` of the kernels (dt padded, B padded, C padded); -1 for
// padding.
std::int64_t projection_row(const PolicyDims& dims, int row) {
  const auto& c = dims.mamba.config;
  if (row < dims.rank()) return row < c.dt_rank ? row : -1;
  row -= dims.rank();
  const std::int64_t n = row % dims.state(), which = row / dims.state();
  return n < c.d_state ? c.dt_rank + which * c.d_state + n : -1;
}

// The row of in_proj for padded row `row` of x (which = 0) or z (1).
std::int64_t in_row(const PolicyDims& dims, int which, std::int64_t row) {
  return row < dims.d_inner ? which * dims.d_inner + row : -1;
}

// The weights of `rows` rows and `segments` segments in the order of their tasks (policy/layout.cuh).
// row_of and column_of: the matrix's row and column for those of the tasks.
template <class RowOf, class ColumnOf>
void write_tasks(const StoredMatrix& matrix, unsigned char* to, int rows, int segments, RowOf row_of,
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
void write_rows(const policy::RowVectors& at, const StoredMatrix& matrix, const std::vector<float>& bias,
                std::byte* to, int count, RowOf row_of) {
  for (int i = 0; i < count; ++i) {
    const std::int64_t row = row_of(i);
    if (at.bias.count > 0) at.bias.in(to)[i] = padded(bias, row);
    if (at.scale.count > 0) at.scale.in(to)[i] = matrix.scale(row);
    if (at.sums.count > 0) at.sums.in(to)[i] = matrix.sum(row);
  }
}

class TeamPacker {
 public:
  TeamPacker(const Folded& folded, const PolicyDims& dims, int team)
      : folded_(folded),
        stored_(folded, dims.config.precision),
        dims_(dims),
        layout_(dims, team),
        share_(layout_.share) {}

  // to: layout.bytes zeros
  void share(int rank, std::byte* to) const {
    const policy::InputSection& input = layout_.input;
    matrix(stored_.input, folded_.input_bias, input.weight, input.rows, share_.rows, dims_.input(),
           rank * share_.rows, to + layout_.input_at);
    const policy::HeadSection& head = layout_.head;
    matrix(stored_.head, folded_.head_bias, head.weight, head.rows, share_.heads, dims_.head_depth(),
           rank * share_.heads, to + layout_.head_at);
    matrix(stored_.hidden, folded_.hidden_bias, head.hidden, head.hidden_rows, share_.hidden, dims_.model(),
           rank * share_.hidden, to + layout_.head_at);
    for (int l = 0; l < dims_.layers(); ++l) {
      const auto at = static_cast<std::size_t>(l);
      channels(folded_.layers[at], stored_.layers[at], rank, to + layout_.layer_at(l));
      products(folded_.layers[at], stored_.layers[at], rank, to + layout_.layer_at(l));
      in_proj(folded_.layers[at], stored_.layers[at], rank, l, to);
    }
  }

 private:
  // `rows` rows of a matrix from `first` on, all columns, and what belongs to them.
  static void matrix(const StoredMatrix& from, const std::vector<float>& bias,
                     const policy::MatrixPart& weight, const policy::RowVectors& vectors, int rows, int depth,
                     int first, std::byte* to) {
    const auto row_of = [first](int row) { return std::int64_t{first} + row; };
    write_tasks(from, weight.in(to), rows, depth / kSegment, row_of, [](int k) { return k; });
    write_rows(vectors, from, bias, to, rows, row_of);
  }

  void channels(const FoldedLayer& folded, const StoredLayer& stored, int rank, std::byte* to) const {
    const policy::LayerSection& at = layout_.layer;
    const int own = share_.own, state = dims_.state();
    const std::int64_t first = std::int64_t{rank} * own;
    for (int i = 0; i < own; ++i) {
      const std::int64_t channel = first + i;
      for (int t = 0; t < dims_.taps(); ++t) at.conv.in(to)[t * own + i] = folded.conv(channel, t);
      at.conv_bias.in(to)[i] = padded(folded.conv_bias, channel);
      for (int k = 0; k < dims_.rank(); ++k) {
        stored.dt_proj.store(channel, k, at.dt_proj.in(to), (k / 4 * own + i) * 4 + k % 4);
      }
      for (int n = 0; n < state; ++n) at.a.in(to)[i * state + n] = folded.a(channel, n);
      at.d.in(to)[i] = padded(folded.d, channel);
    }
    write_rows(at.dt_rows, stored.dt_proj, folded.dt_proj_bias, to, own,
               [first](int i) { return first + i; });
  }

  void products(const FoldedLayer& folded, const StoredLayer& stored, int rank, std::byte* to) const {
    const policy::LayerSection& at = layout_.layer;
    const std::int64_t first_channel = std::int64_t{rank} * share_.own;
    const auto row_of = [this](int row) { return projection_row(dims_, row); };
    write_tasks(stored.x_proj, at.x_proj.in(to), dims_.projection(), share_.own_segments, row_of,
                [first_channel](int k) { return first_channel + k; });
    write_rows(at.projection_rows, stored.x_proj, folded.x_proj_bias, to, dims_.projection(), row_of);
    matrix(stored.out_proj, folded.out_proj_bias, at.out_proj, at.out_rows, share_.rows, dims_.inner(),
           rank * share_.rows, to);
  }

  void in_proj(const FoldedLayer& folded, const StoredLayer& stored, int rank, int l, std::byte* to) const {
    const int own = share_.own;
    const auto row_of = [this, own, rank](int row) {
      return in_row(dims_, row / own, std::int64_t{rank} * own + row % own);
    };
    write_tasks(stored.in_proj, layout_.in_proj.weight.in(to + layout_.in_proj_at(l)), 2 * own,
                dims_.model() / kSegment, row_of, [](int k) { return k; });
    write_rows(layout_.layer.in_rows, stored.in_proj, folded.in_proj_bias, to + layout_.layer_at(l), 2 * own,
               row_of);
  }

  const Folded& folded_;
  const StoredPolicy stored_;
  const PolicyDims& dims_;
  const policy::TeamLayout layout_;
  const policy::Share& share_;
};

class RowPacker {
 public:
  explicit RowPacker(const PolicyDims& dims) : dims_(dims) {}
  std::vector<std::byte> take() { return std::move(bytes_); }

  // Groups [k / 4][columns] of the rows row_of(0 ... outputs - 1), and what belongs to the columns. normed:
  // the matrix is behind a norm.
  template <class RowOf>
  RowLayout::Matrix matrix(const StoredMatrix& from, const std::vector<float>& bias, int outputs, int k_count,
                           bool normed, RowOf row_of) {
    const int columns = policy::product_columns(outputs);
    RowLayout::Matrix at;
    at.weights = groups(columns, k_count);
    unsigned char* const to = at.weights.in(bytes_.data());
    for (int column = 0; column < outputs; ++column) {
      for (int k = 0; k < k_count; ++k) {
        from.store(row_of(column), k, to, (std::int64_t{k / 4} * columns + column) * 4 + k % 4);
      }
    }
    const auto of_columns = [&](bool any, auto value) {
      return vector(any ? columns : 0,
                    [&](std::int64_t i) { return i < outputs ? value(row_of(static_cast<int>(i))) : 0.0f; });
    };
    at.bias = of_columns(true, [&](std::int64_t row) { return padded(bias, row); });
    at.scale = of_columns(dims_.row_scales(), [&](std::int64_t row) { return from.scale(row); });
    at.sums = of_columns(normed && dims_.centres(), [&](std::int64_t row) { return from.sum(row); });
    return at;
  }
  RowLayout::Matrix matrix(const StoredMatrix& from, const std::vector<float>& bias, int outputs, int k_count,
                           bool normed) {
    return matrix(from, bias, outputs, k_count, normed, [](int row) { return std::int64_t{row}; });
  }
  template <class Value>
  RowLayout::Part vector(std::int64_t count, Value value) {
    const RowLayout::Part part =
        reserve(RowLayout::Part(static_cast<long long>(bytes_.size()), count, kAlignment));
    float* to = part.in(bytes_.data());
    for (std::int64_t i = 0; i < count; ++i) to[i] = value(i);
    return part;
  }

  RowLayout::Layer layer(const FoldedLayer& folded, const StoredLayer& stored) {
    const int inner = dims_.inner(), state = dims_.state();
    RowLayout::Layer at;
    at.in_proj = matrix(stored.in_proj, folded.in_proj_bias, 2 * inner, dims_.model(), true,
                        [&](int row) { return in_row(dims_, row / inner, row % inner); });
    at.conv = vector(std::int64_t{dims_.taps()} * inner,
                     [&](std::int64_t i) { return folded.conv(i % inner, i / inner); });
    at.conv_bias = vector(inner, [&](std::int64_t i) { return padded(folded.conv_bias, i); });
    at.x_proj = matrix(stored.x_proj, folded.x_proj_bias, dims_.projection(), inner, false,
                       [&](int row) { return projection_row(dims_, row); });
    at.dt_proj = groups(inner, dims_.rank());
    for (std::int64_t i = 0; i < std::int64_t{dims_.rank()} * inner; ++i) {
      stored.dt_proj.store(i / 4 % inner, i / 4 / inner * 4 + i % 4, at.dt_proj.in(bytes_.data()), i);
    }
    at.dt_bias = vector(std::int64_t{inner} * (dims_.row_scales() ? 2 : 1), [&](std::int64_t i) {
      return i < inner ? padded(folded.dt_proj_bias, i) : stored.dt_proj.scale(i - inner);
    });
    at.a =
        vector(std::int64_t{inner} * state, [&](std::int64_t i) { return folded.a(i / state, i % state); });
    at.d = vector(inner, [&](std::int64_t i) { return padded(folded.d, i); });
    at.out_proj = matrix(stored.out_proj, folded.out_proj_bias, dims_.model(), inner, false);
    return at;
  }

 private:
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

// copy(place in the kernels' layout, place in the public one) for every value of a state.
template <class Copy>
void for_each_value(const PolicyDims& dims, Copy copy) {
  const core::Network& n = dims.config.network;
  std::int64_t base = 0;
  for (const core::Block& layer : n.layers) {
    for (const core::Phase& phase : layer) {
      const core::StateId id = core::state_of(phase);
      if (id == core::kNone) continue;
      const core::StatePart& part = n.state(id);
      const bool scan = std::holds_alternative<core::SelectiveScan>(phase);
      const std::int64_t first = base + (scan ? 0 : dims.ssm_floats()), at = n.state_at(id);
      for (std::int64_t i = 0; i < part.size(); ++i) {
        const std::int64_t row = i / part.columns, column = i % part.columns;
        copy(first + (scan ? row * dims.state() + column : column * dims.inner() + row), at + i);
      }
    }
    base += dims.layer_state_floats();
  }
}

}  // namespace

std::vector<std::byte> pack_team(const core::PolicyWeights& weights, const PolicyDims& dims, int team) {
  const auto share = static_cast<std::size_t>(policy::TeamLayout(dims, team).bytes);
  std::vector<std::byte> packed(share * static_cast<std::size_t>(team));
  const Folded folded(weights, dims.mamba);
  const TeamPacker packer(folded, dims, team);
  for (int rank = 0; rank < team; ++rank)
    packer.share(rank, packed.data() + static_cast<std::size_t>(rank) * share);
  return packed;
}

PackedRows pack_rows(const core::PolicyWeights& weights, const PolicyDims& dims) {
  RowPacker packer(dims);
  const Folded folded(weights, dims.mamba);
  const StoredPolicy stored(folded, dims.config.precision);
  const bool deep = dims.d_hidden > 0, normed = dims.form.final_norm;
  RowLayout layout;
  layout.input = packer.matrix(stored.input, folded.input_bias, dims.model(), dims.input(), false);
  layout.head =
      packer.matrix(stored.head, folded.head_bias, dims.output(), dims.head_depth(), normed && !deep);
  layout.hidden = packer.matrix(stored.hidden, folded.hidden_bias, dims.hidden(), dims.model(), normed);
  for (std::size_t i = 0; i < folded.layers.size(); ++i) {
    layout.layers.push_back(packer.layer(folded.layers[i], stored.layers[i]));
  }
  return {std::move(layout), packer.take()};
}

void pack_state(const PolicyDims& dims, const float* values, float* packed) {
  std::fill(packed, packed + dims.state_floats(), 0.0f);
  for_each_value(dims, [&](std::int64_t inside, std::int64_t outside) { packed[inside] = values[outside]; });
}

void unpack_state(const PolicyDims& dims, const float* packed, float* values) {
  for_each_value(dims, [&](std::int64_t inside, std::int64_t outside) { values[outside] = packed[inside]; });
}

}  // namespace exphil::cuda
