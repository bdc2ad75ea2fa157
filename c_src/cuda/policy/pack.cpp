#include "cuda/policy/pack.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace exphil::cuda {
namespace {

using core::PolicyLayerWeights;
using policy::kSegment;

// A padded view of a matrix {rows, columns}: zero outside; columns multiplied by `scale` where given.
struct Padded {
  const std::vector<float>& values;
  std::int64_t rows, columns;
  const std::vector<float>* scale = nullptr;

  float operator()(std::int64_t row, std::int64_t column) const {
    if (row < 0 || row >= rows || column < 0 || column >= columns || values.empty()) return 0.0f;
    const float value = values[static_cast<std::size_t>(row * columns + column)];
    return scale == nullptr ? value : value * (*scale)[static_cast<std::size_t>(column)];
  }
};

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
  TeamPacker(const core::PolicyWeights& weights, const PolicyDims& dims, int team)
      : weights_(weights), dims_(dims), layout_(dims, team), share_(layout_.share) {}

  // to: layout.bytes zeros
  void share(int rank, std::byte* to) const {
    const auto& c = dims_.config;
    const int first_row = rank * share_.rows, first_head = rank * share_.heads;
    const Padded input{weights_.input_proj, c.d_model, c.d_input};
    std::byte* section = to + layout_.input_at;
    write_tasks(layout_.input.weight.in(section), share_.rows, dims_.input() / kSegment,
                [&](int row, int k) { return input(first_row + row, k); });
    float* bias = layout_.input.bias.in(section);
    for (int i = 0; i < share_.rows; ++i) bias[i] = padded(weights_.input_proj_bias, first_row + i);

    section = to + layout_.head_at;
    const Padded head{weights_.head, c.d_output, c.d_model, &weights_.norm_f};
    write_tasks(layout_.head.weight.in(section), share_.heads, dims_.model() / kSegment,
                [&](int row, int k) { return head(first_head + row, k); });
    bias = layout_.head.bias.in(section);
    for (int i = 0; i < share_.heads; ++i) bias[i] = padded(weights_.head_bias, first_head + i);

    for (int l = 0; l < dims_.layers(); ++l) {
      const PolicyLayerWeights& layer = weights_.layers[static_cast<std::size_t>(l)];
      channels(layer, rank, to + layout_.layer_at(l));
      products(layer, rank, to + layout_.layer_at(l));
      in_proj(layer, rank, to + layout_.in_proj_at(l));
    }
  }

 private:
  void channels(const PolicyLayerWeights& layer, int rank, std::byte* to) const {
    const auto& c = dims_.config;
    const policy::LayerSection& at = layout_.layer;
    const int own = share_.own, state = dims_.state();
    const Padded conv{layer.conv, c.d_inner, c.d_conv}, a{layer.a, c.d_inner, c.d_state};
    const Padded dt_proj{layer.dt_proj, c.d_inner, c.dt_rank};
    for (int i = 0; i < own; ++i) {
      const std::int64_t channel = std::int64_t{rank} * own + i;
      at.in_bias.in(to)[i] = padded(layer.in_proj_bias, in_row(dims_, 0, channel));
      at.in_bias.in(to)[own + i] = padded(layer.in_proj_bias, in_row(dims_, 1, channel));
      for (int t = 0; t < dims_.taps(); ++t) at.conv.in(to)[t * own + i] = conv(channel, t);
      at.conv_bias.in(to)[i] = padded(layer.conv_bias, channel);
      for (int k = 0; k < dims_.rank(); ++k)
        at.dt_proj.in(to)[(k / 4 * own + i) * 4 + k % 4] = dt_proj(channel, k);
      at.dt_bias.in(to)[i] = padded(layer.dt_proj_bias, channel);
      for (int n = 0; n < state; ++n) at.a.in(to)[i * state + n] = a(channel, n);
      at.d.in(to)[i] = padded(layer.d, channel);
    }
  }

  void products(const PolicyLayerWeights& layer, int rank, std::byte* to) const {
    const auto& c = dims_.config;
    const int rows = share_.rows, first_row = rank * rows;
    const std::int64_t first_channel = std::int64_t{rank} * share_.own;
    const Padded x_proj{layer.x_proj, c.dt_rank + 2 * c.d_state, c.d_inner};
    write_tasks(layout_.layer.x_proj.in(to), dims_.projection(), share_.own_segments,
                [&](int row, int k) { return x_proj(projection_row(dims_, row), first_channel + k); });
    const Padded out_proj{layer.out_proj, c.d_model, c.d_inner};
    write_tasks(layout_.layer.out_proj.in(to), rows, dims_.inner() / kSegment,
                [&](int row, int k) { return out_proj(first_row + row, k); });
    float* bias = layout_.layer.out_bias.in(to);
    for (int i = 0; i < rows; ++i) bias[i] = padded(layer.out_proj_bias, first_row + i);
  }

  void in_proj(const PolicyLayerWeights& layer, int rank, std::byte* to) const {
    const auto& c = dims_.config;
    const int own = share_.own;
    const std::int64_t first_channel = std::int64_t{rank} * own;
    const Padded in_proj{layer.in_proj, 2 * c.d_inner, c.d_model, &layer.norm};
    write_tasks(layout_.in_proj.weight.in(to), 2 * own, dims_.model() / kSegment, [&](int row, int k) {
      return in_proj(in_row(dims_, row / own, first_channel + row % own), k);
    });
  }

  const core::PolicyWeights& weights_;
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

  RowLayout::Layer layer(const PolicyLayerWeights& weights) {
    const auto& c = dims_.config;
    const int inner = dims_.inner(), state = dims_.state();
    const Padded in_proj{weights.in_proj, 2 * c.d_inner, c.d_model, &weights.norm};
    const Padded x_proj{weights.x_proj, c.dt_rank + 2 * c.d_state, c.d_inner};
    const Padded out_proj{weights.out_proj, c.d_model, c.d_inner};
    const Padded conv{weights.conv, c.d_inner, c.d_conv}, a{weights.a, c.d_inner, c.d_state};
    const Padded dt_proj{weights.dt_proj, c.d_inner, c.dt_rank};
    const auto in_of = [&](std::int64_t row) {
      return in_row(dims_, static_cast<int>(row / inner), row % inner);
    };
    RowLayout::Layer at;
    at.in_proj = matrix(2 * inner, dims_.model(), [&](int row, int k) { return in_proj(in_of(row), k); });
    at.in_bias = vector(policy::product_columns(2 * inner), [&](std::int64_t i) {
      return i < 2 * inner ? padded(weights.in_proj_bias, in_of(i)) : 0.0f;
    });
    at.conv = vector(std::int64_t{dims_.taps()} * inner,
                     [&](std::int64_t i) { return conv(i % inner, i / inner); });
    at.conv_bias = vector(inner, [&](std::int64_t i) { return padded(weights.conv_bias, i); });
    at.x_proj = matrix(dims_.projection(), inner,
                       [&](int row, int k) { return x_proj(projection_row(dims_, row), k); });
    at.dt_proj = vector(std::int64_t{dims_.rank()} * inner,
                        [&](std::int64_t i) { return dt_proj(i / 4 % inner, i / 4 / inner * 4 + i % 4); });
    at.dt_bias = vector(inner, [&](std::int64_t i) { return padded(weights.dt_proj_bias, i); });
    at.a = vector(std::int64_t{inner} * state, [&](std::int64_t i) { return a(i / state, i % state); });
    at.d = vector(inner, [&](std::int64_t i) { return padded(weights.d, i); });
    at.out_proj = matrix(dims_.model(), inner, [&](int row, int k) { return out_proj(row, k); });
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
  const TeamPacker packer(weights, dims, team);
  for (int rank = 0; rank < team; ++rank)
    packer.share(rank, packed.data() + static_cast<std::size_t>(rank) * share);
  return packed;
}

PackedRows pack_rows(const core::PolicyWeights& weights, const PolicyDims& dims) {
  const auto& c = dims.config;
  RowPacker packer(dims);
  const Padded input{weights.input_proj, c.d_model, c.d_input};
  const Padded head{weights.head, c.d_output, c.d_model, &weights.norm_f};
  RowLayout layout;
  layout.input = packer.matrix(dims.model(), dims.input(), [&](int row, int k) { return input(row, k); });
  layout.input_bias = packer.vector(policy::product_columns(dims.model()),
                                    [&](std::int64_t i) { return padded(weights.input_proj_bias, i); });
  layout.head = packer.matrix(dims.output(), dims.model(), [&](int row, int k) { return head(row, k); });
  layout.head_bias = packer.vector(policy::product_columns(dims.output()),
                                   [&](std::int64_t i) { return padded(weights.head_bias, i); });
  for (const PolicyLayerWeights& layer : weights.layers) layout.layers.push_back(packer.layer(layer));
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
