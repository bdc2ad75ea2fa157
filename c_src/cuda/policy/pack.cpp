#include "cuda/policy/pack.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cuda/policy/fold.hpp"

namespace exphil::cuda {
namespace {

using core::PolicyLayerWeights;
using policy::kSegment;

float padded(const std::vector<float>& vector, std::int64_t i) {
  return i >= 0 && i < static_cast<std::int64_t>(vector.size()) ? vector[static_cast<std::size_t>(i)] : 0.0f;
}

// The checkpoint's row of x_proj for row `row` of the kernels (dt padded, B padded, C padded); -1 for
// padding.
std::int64_t projection_row(const PolicyDims& dims, int row) {
  const auto& c = dims.config;
  if (row < dims.rank()) return row < c.dt_rank ? row : -1;
  row -= dims.rank();
  const std::int64_t n = row % dims.state(), which = row / dims.state();
  return n < c.d_state ? c.dt_rank + which * c.d_state + n : -1;
}

// The row of in_proj for padded row `row` of x (which = 0) or z (1).
std::int64_t in_row(const PolicyDims& dims, int which, std::int64_t row) {
  return row < dims.config.d_inner ? which * dims.config.d_inner + row : -1;
}

// Values of `rows` rows and `segments` segments in the order of their tasks (policy/layout.cuh).
template <class Value>
void write_tasks(float* to, int rows, int segments, Value value) {
  const int tasks = rows * segments;
  for (int task = 0; task < tasks; ++task) {
    for (int k = 0; k < kSegment; ++k) {
      to[(std::int64_t{k / 4} * tasks + task) * 4 + k % 4] = value(task % rows, task / rows * kSegment + k);
    }
  }
}

class TeamPacker {
 public:
  TeamPacker(const core::PolicyWeights& weights, const Folded& folded, const PolicyDims& dims, int team)
      : weights_(weights), folded_(folded), dims_(dims), layout_(dims, team), share_(layout_.share) {}

  // to: layout.bytes zeros
  void share(int rank, std::byte* to) const {
    const int first_row = rank * share_.rows, first_head = rank * share_.heads;
    const int first_hidden = rank * share_.hidden;
    std::byte* section = to + layout_.input_at;
    write_tasks(layout_.input.weight.in(section), share_.rows, dims_.input() / kSegment,
                [&](int row, int k) { return folded_.input(first_row + row, k); });
    float* bias = layout_.input.bias.in(section);
    for (int i = 0; i < share_.rows; ++i) bias[i] = padded(folded_.input_bias, first_row + i);

    section = to + layout_.head_at;
    write_tasks(layout_.head.weight.in(section), share_.heads, dims_.head_depth() / kSegment,
                [&](int row, int k) { return folded_.head(first_head + row, k); });
    bias = layout_.head.bias.in(section);
    for (int i = 0; i < share_.heads; ++i) bias[i] = padded(folded_.head_bias, first_head + i);
    write_tasks(layout_.head.hidden.in(section), share_.hidden, dims_.model() / kSegment,
                [&](int row, int k) { return folded_.hidden(first_hidden + row, k); });
    bias = layout_.head.hidden_bias.in(section);
    for (int i = 0; i < share_.hidden; ++i) bias[i] = padded(folded_.hidden_bias, first_hidden + i);

    for (int l = 0; l < dims_.layers(); ++l) {
      const PolicyLayerWeights& layer = weights_.layers[static_cast<std::size_t>(l)];
      const FoldedLayer& folded = folded_.layers[static_cast<std::size_t>(l)];
      channels(layer, folded, rank, to + layout_.layer_at(l));
      products(layer, folded, rank, to + layout_.layer_at(l));
      in_proj(folded, rank, to + layout_.in_proj_at(l));
    }
  }

 private:
  void channels(const PolicyLayerWeights& layer, const FoldedLayer& folded, int rank, std::byte* to) const {
    const auto& c = dims_.config;
    const policy::LayerSection& at = layout_.layer;
    const int own = share_.own, state = dims_.state();
    const FoldedMatrix conv(layer.conv, c.d_inner, c.d_conv), a(layer.a, c.d_inner, c.d_state);
    for (int i = 0; i < own; ++i) {
      const std::int64_t channel = std::int64_t{rank} * own + i;
      at.in_bias.in(to)[i] = padded(folded.in_proj_bias, in_row(dims_, 0, channel));
      at.in_bias.in(to)[own + i] = padded(folded.in_proj_bias, in_row(dims_, 1, channel));
      for (int t = 0; t < dims_.taps(); ++t) at.conv.in(to)[t * own + i] = conv(channel, t);
      at.conv_bias.in(to)[i] = padded(layer.conv_bias, channel);
      for (int k = 0; k < dims_.rank(); ++k)
        at.dt_proj.in(to)[(k / 4 * own + i) * 4 + k % 4] = folded.dt_proj(channel, k);
      at.dt_bias.in(to)[i] = padded(folded.dt_proj_bias, channel);
      for (int n = 0; n < state; ++n) at.a.in(to)[i * state + n] = a(channel, n);
      at.d.in(to)[i] = padded(layer.d, channel);
    }
  }

  void products(const PolicyLayerWeights& layer, const FoldedLayer& folded, int rank, std::byte* to) const {
    const int rows = share_.rows, first_row = rank * rows;
    const std::int64_t first_channel = std::int64_t{rank} * share_.own;
    write_tasks(layout_.layer.x_proj.in(to), dims_.projection(), share_.own_segments,
                [&](int row, int k) { return folded.x_proj(projection_row(dims_, row), first_channel + k); });
    const policy::Part<float>& projection_bias = layout_.layer.projection_bias;
    for (int i = 0; i < projection_bias.count; ++i) {
      projection_bias.in(to)[i] = padded(folded.x_proj_bias, projection_row(dims_, i));
    }
    write_tasks(layout_.layer.out_proj.in(to), rows, dims_.inner() / kSegment,
                [&](int row, int k) { return folded.out_proj(first_row + row, k); });
    float* bias = layout_.layer.out_bias.in(to);
    for (int i = 0; i < rows; ++i) bias[i] = padded(layer.out_proj_bias, first_row + i);
  }

  void in_proj(const FoldedLayer& folded, int rank, std::byte* to) const {
    const int own = share_.own;
    const std::int64_t first_channel = std::int64_t{rank} * own;
    write_tasks(layout_.in_proj.weight.in(to), 2 * own, dims_.model() / kSegment, [&](int row, int k) {
      return folded.in_proj(in_row(dims_, row / own, first_channel + row % own), k);
    });
  }

  const core::PolicyWeights& weights_;
  const Folded& folded_;
  const PolicyDims& dims_;
  const policy::TeamLayout layout_;
  const policy::Share& share_;
};

class RowPacker {
 public:
  explicit RowPacker(const PolicyDims& dims) : dims_(dims) {}
  std::vector<std::byte> take() { return std::move(bytes_); }

  // float4 [k / 4][columns]; value(output, k)
  template <class Value>
  RowLayout::Part matrix(int outputs, int k_count, Value value) {
    const int columns = policy::product_columns(outputs);
    const RowLayout::Part part = reserve(std::int64_t{columns} * k_count);
    float* to = part.in(bytes_.data());
    for (int column = 0; column < outputs; ++column) {
      for (int k = 0; k < k_count; ++k) {
        to[(std::int64_t{k / 4} * columns + column) * 4 + k % 4] = value(column, k);
      }
    }
    return part;
  }
  template <class Value>
  RowLayout::Part vector(std::int64_t count, Value value) {
    const RowLayout::Part part = reserve(count);
    float* to = part.in(bytes_.data());
    for (std::int64_t i = 0; i < count; ++i) to[i] = value(i);
    return part;
  }

  RowLayout::Layer layer(const PolicyLayerWeights& weights, const FoldedLayer& folded) {
    const auto& c = dims_.config;
    const int inner = dims_.inner(), state = dims_.state();
    const FoldedMatrix conv(weights.conv, c.d_inner, c.d_conv), a(weights.a, c.d_inner, c.d_state);
    const auto in_of = [&](std::int64_t row) {
      return in_row(dims_, static_cast<int>(row / inner), row % inner);
    };
    RowLayout::Layer at;
    at.in_proj =
        matrix(2 * inner, dims_.model(), [&](int row, int k) { return folded.in_proj(in_of(row), k); });
    at.in_bias = vector(policy::product_columns(2 * inner), [&](std::int64_t i) {
      return i < 2 * inner ? padded(folded.in_proj_bias, in_of(i)) : 0.0f;
    });
    at.conv = vector(std::int64_t{dims_.taps()} * inner,
                     [&](std::int64_t i) { return conv(i % inner, i / inner); });
    at.conv_bias = vector(inner, [&](std::int64_t i) { return padded(weights.conv_bias, i); });
    at.x_proj = matrix(dims_.projection(), inner,
                       [&](int row, int k) { return folded.x_proj(projection_row(dims_, row), k); });
    at.x_bias = vector(dims_.form.projection_bias ? policy::product_columns(dims_.projection()) : 0,
                       [&](std::int64_t i) {
                         return i < dims_.projection()
                                    ? padded(folded.x_proj_bias, projection_row(dims_, static_cast<int>(i)))
                                    : 0.0f;
                       });
    at.dt_proj = vector(std::int64_t{dims_.rank()} * inner, [&](std::int64_t i) {
      return folded.dt_proj(i / 4 % inner, i / 4 / inner * 4 + i % 4);
    });
    at.dt_bias = vector(inner, [&](std::int64_t i) { return padded(folded.dt_proj_bias, i); });
    at.a = vector(std::int64_t{inner} * state, [&](std::int64_t i) { return a(i / state, i % state); });
    at.d = vector(inner, [&](std::int64_t i) { return padded(weights.d, i); });
    at.out_proj = matrix(dims_.model(), inner, [&](int row, int k) { return folded.out_proj(row, k); });
    at.out_bias = vector(policy::product_columns(dims_.model()),
                         [&](std::int64_t i) { return padded(weights.out_proj_bias, i); });
    return at;
  }

 private:
  RowLayout::Part reserve(std::int64_t floats) {
    const RowLayout::Part part(static_cast<long long>(bytes_.size()), floats, kAlignment);
    bytes_.resize(static_cast<std::size_t>(policy::round_up_bytes(part.end(), kAlignment)));
    return part;
  }

  static constexpr long long kAlignment = 256;
  const PolicyDims& dims_;
  std::vector<std::byte> bytes_;
};

// copy(is_ssm, place in the kernels' layout, place in the public one) for every value of a state.
template <class Copy>
void for_each_value(const PolicyDims& dims, Copy copy) {
  const auto& c = dims.config;
  for (std::int64_t l = 0; l < c.n_layer; ++l) {
    const std::int64_t base = l * dims.layer_state_floats(),
                       conv_base = base + std::int64_t{dims.inner()} * dims.state();
    for (std::int64_t d = 0; d < c.d_inner; ++d) {
      for (std::int64_t n = 0; n < c.d_state; ++n) {
        copy(true, base + d * dims.state() + n, (l * c.d_inner + d) * c.d_state + n);
      }
      for (std::int64_t t = 0; t < dims.history(); ++t) {
        copy(false, conv_base + t * dims.inner() + d, (l * c.d_inner + d) * dims.history() + t);
      }
    }
  }
}

}  // namespace

std::vector<std::byte> pack_team(const core::PolicyWeights& weights, const PolicyDims& dims, int team) {
  const auto share = static_cast<std::size_t>(policy::TeamLayout(dims, team).bytes);
  std::vector<std::byte> packed(share * static_cast<std::size_t>(team));
  const Folded folded(weights);
  const TeamPacker packer(weights, folded, dims, team);
  for (int rank = 0; rank < team; ++rank)
    packer.share(rank, packed.data() + static_cast<std::size_t>(rank) * share);
  return packed;
}

PackedRows pack_rows(const core::PolicyWeights& weights, const PolicyDims& dims) {
  RowPacker packer(dims);
  const Folded folded(weights);
  RowLayout layout;
  layout.input =
      packer.matrix(dims.model(), dims.input(), [&](int row, int k) { return folded.input(row, k); });
  layout.input_bias = packer.vector(policy::product_columns(dims.model()),
                                    [&](std::int64_t i) { return padded(folded.input_bias, i); });
  layout.head =
      packer.matrix(dims.output(), dims.head_depth(), [&](int row, int k) { return folded.head(row, k); });
  layout.head_bias = packer.vector(policy::product_columns(dims.output()),
                                   [&](std::int64_t i) { return padded(folded.head_bias, i); });
  layout.hidden =
      packer.matrix(dims.hidden(), dims.model(), [&](int row, int k) { return folded.hidden(row, k); });
  layout.hidden_bias = packer.vector(policy::product_columns(dims.hidden()),
                                     [&](std::int64_t i) { return padded(folded.hidden_bias, i); });
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    layout.layers.push_back(packer.layer(weights.layers[i], folded.layers[i]));
  }
  return {std::move(layout), packer.take()};
}

void pack_state(const PolicyDims& dims, const float* ssm, const float* conv, float* packed) {
  std::fill(packed, packed + dims.state_floats(), 0.0f);
  for_each_value(dims, [&](bool is_ssm, std::int64_t inside, std::int64_t outside) {
    packed[inside] = (is_ssm ? ssm : conv)[outside];
  });
}

void unpack_state(const PolicyDims& dims, const float* packed, float* ssm, float* conv) {
  for_each_value(dims, [&](bool is_ssm, std::int64_t inside, std::int64_t outside) {
    (is_ssm ? ssm : conv)[outside] = packed[inside];
  });
}

}  // namespace exphil::cuda
