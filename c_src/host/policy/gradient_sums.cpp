#include "host/policy/gradient_sums.hpp"

#include <algorithm>

#include "core/parallel.hpp"
#include "core/policy/heads.hpp"

namespace exphil::host {

LayerVectors::LayerVectors(const core::PolicyConfig& config)
    : model(padded(config.d_model)),
      inner(padded(config.d_inner)),
      taps(config.d_conv),
      floats(2 * model + (taps + 2 + config.d_state) * inner) {}

GradientSums::GradientSums(const core::PolicyWeights& weights)
    : final_vectors(LayerVectors(weights.config).floats), vectors(weights.config) {
  const core::PolicyConfig& c = weights.config;
  if (c.spec.input_projection) input_proj = {weights.input_proj.data(), c.d_model, c.d_input};
  for (const core::PolicyLayerWeights& w : weights.layers) {
    Layer layer;
    layer.in_x = {w.in_proj.data(), c.d_inner, c.d_model};
    layer.in_z = {w.in_proj.data() + c.d_inner * c.d_model, c.d_inner, c.d_model};
    layer.x_proj = {w.x_proj.data(), c.dt_rank + 2 * c.d_state, c.d_inner};
    layer.dt_proj = {w.dt_proj.data(), c.d_inner, c.dt_rank};
    layer.out_proj = {w.out_proj.data(), c.d_model, c.d_inner};
    layer.vectors = AlignedBuffer(vectors.floats);
    layers.push_back(std::move(layer));
  }
  if (!weights.heads.empty()) {
    const core::PolicyHead all = core::joined_heads(weights.heads);
    heads_hidden = {all.hidden.data(), all.width(), c.d_model};
    head = {all.out.data(), c.d_output, all.width()};
  } else if (!weights.head.empty()) {
    head = {weights.head.data(), c.d_output, c.d_model};
  }
}

void GradientSums::add_vectors(const AlignedBuffer& rows, std::int64_t count, AlignedBuffer* totals) const {
  core::parallel_for(vectors.floats, 1 << 12, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < count; ++row) {
      const float* from = rows.data() + row * vectors.floats;
      for (std::int64_t i = begin; i < end; ++i) totals->data()[i] += from[i];
    }
  });
}

std::int64_t GradientSums::most_outs() const {
  std::int64_t most = std::max({input_proj.outs(), heads_hidden.outs(), head.outs()});
  for (const Layer& l : layers) most = std::max({most, l.in_x.outs(), l.x_proj.outs(), l.out_proj.outs()});
  return most;
}

std::int64_t GradientSums::most_depth() const {
  std::int64_t most = std::max({input_proj.depth(), heads_hidden.depth(), head.depth()});
  for (const Layer& l : layers) most = std::max({most, l.in_x.depth(), l.x_proj.depth(), l.dt_proj.depth()});
  return most;
}

namespace {

void copy_vector(const float* from, std::vector<float>& to) {
  std::copy_n(from, to.size(), to.data());
}

// From the combined matrices of core::PolicyHead: the rows of each hidden layer, and its block of the second
// product.
void write_heads(const LinearGradient& hidden, const LinearGradient& out,
                 std::vector<core::PolicyHeadValues<float>>& heads) {
  std::int64_t first_hidden = 0, first_out = 0;
  for (core::PolicyHeadValues<float>& head : heads) {
    const std::int64_t width = head.width(), count = static_cast<std::int64_t>(head.out_bias.size());
    for (std::int64_t row = 0; row < width; ++row) {
      for (std::int64_t k = 0; k < hidden.depth(); ++k) {
        head.hidden[static_cast<std::size_t>(row * hidden.depth() + k)] =
            hidden.weight_at(first_hidden + row, k);
      }
      head.hidden_bias[static_cast<std::size_t>(row)] = hidden.bias_at(first_hidden + row);
    }
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t k = 0; k < width; ++k) {
        head.out[static_cast<std::size_t>(row * width + k)] =
            out.weight_at(first_out + row, first_hidden + k);
      }
      head.out_bias[static_cast<std::size_t>(row)] = out.bias_at(first_out + row);
    }
    first_hidden += width, first_out += count;
  }
}

}  // namespace

void GradientSums::write_layer(const core::PolicyConfig& c, std::size_t index,
                               const core::PolicyLayerWeights& weights,
                               core::PolicyLayerValues<float>* to) const {
  const Layer& from = layers[index];
  auto* row = const_cast<float*>(from.vectors.data());
  std::vector<float> none, halves[2];
  if (!to->in_proj_bias.empty()) halves[0].resize(to->in_proj_bias.size() / 2), halves[1] = halves[0];
  from.in_x.write(to->in_proj.data(), halves[0]);
  from.in_z.write(to->in_proj.data() + c.d_inner * c.d_model, halves[1]);
  std::copy(halves[0].begin(), halves[0].end(), to->in_proj_bias.begin());
  std::copy(halves[1].begin(), halves[1].end(),
            to->in_proj_bias.begin() + static_cast<std::ptrdiff_t>(halves[0].size()));
  from.x_proj.write(to->x_proj.data(), to->x_proj_bias);
  from.dt_proj.write(to->dt_proj.data(), to->dt_proj_bias);
  from.out_proj.write(to->out_proj.data(), to->out_proj_bias);
  copy_vector(vectors.norm(row), to->norm);
  copy_vector(vectors.norm_bias(row), to->norm_bias);
  copy_vector(vectors.conv_bias(row), to->conv_bias);
  copy_vector(vectors.d(row), to->d);
  for (std::int64_t i = 0; i < c.d_inner * c.d_conv; ++i) {
    to->conv[static_cast<std::size_t>(i)] = vectors.conv(row)[i % c.d_conv * vectors.inner + i / c.d_conv];
  }
  unpack_panels(vectors.a(row), c.d_inner, c.d_state, to->a.data());
  for (std::size_t i = 0; i < to->a_log.size(); ++i)
    to->a_log[i] = to->a[i] * weights.a[i];  // A = -exp(a_log)
}

void GradientSums::write(const core::PolicyWeights& weights, core::PolicyValues<float>* to) const {
  const core::PolicyConfig& c = weights.config;
  if (c.spec.input_projection) input_proj.write(to->input_proj.data(), to->input_proj_bias);
  for (std::size_t i = 0; i < layers.size(); ++i) write_layer(c, i, weights.layers[i], &to->layers[i]);
  auto* row = const_cast<float*>(final_vectors.data());
  copy_vector(vectors.norm(row), to->norm_f);
  copy_vector(vectors.norm_bias(row), to->norm_f_bias);
  if (!weights.heads.empty()) {
    write_heads(heads_hidden, head, to->heads);
  } else if (!weights.head.empty()) {
    head.write(to->head.data(), to->head_bias);
  }
}

}  // namespace exphil::host
