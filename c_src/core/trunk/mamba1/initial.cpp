#include "core/trunk/mamba1/initial.hpp"

#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "core/limits.hpp"
#include "core/trunk/load.hpp"
#include "core/trunk/mamba1/state_spaces.hpp"

namespace exphil::core::mamba1 {

namespace {

// 8 GB of weights, before anything is allocated for them.
constexpr std::int64_t kMostWeights = std::int64_t{1} << 31;
constexpr double kLeastDt = 0.001, kMostDt = 0.1;

Config config_of(SizeReader& sizes) {
  Config c;
  c.d_input = sizes.take("d_input", kMaxDim);
  c.d_output = sizes.take("d_output", kMaxDim);
  c.d_model = sizes.take("d_model", kMaxDim);
  c.n_layer = sizes.take("layers", kMaxLayers);
  c.d_state = sizes.take("d_state", kMaxState, 16);
  c.d_conv = sizes.take("d_conv", kMaxConvTaps, 4);
  c.d_inner = c.d_model * sizes.take("expand", kMaxDim / c.d_model, 2);
  c.dt_rank = sizes.take("dt_rank", kMaxDim, (c.d_model + 15) / 16);
  sizes.require_all_taken("mamba1");
  return c;
}

void check_count(const std::vector<NamedTensor>& tensors) {
  std::int64_t count = 0;
  for (const NamedTensor& tensor : tensors) {
    count += tensor.shape.elements(":d_model");
    if (count > kMostWeights) {
      fail(ErrorKind::limit_exceeded, ":d_model", "a policy of these sizes has more than ", kMostWeights,
           " weights, the limit");
    }
  }
}

// The inverse of softplus: softplus(result) = dt, with dt drawn log-uniformly.
double dt_bias(double u) {
  const double low = exact_log(kLeastDt), span = exact_log(kMostDt) - low;
  const double part = u * span, dt = exact_exp(low + part);
  return dt + exact_log(1 - exact_exp(-dt));
}

// As state-spaces/mamba does: mamba_ssm/modules/mamba_simple.py for the mixer, and for what is added to the
// hidden vector _init_weights of mamba_ssm/models/mixer_seq_simple.py, whose n_residuals_per_layer is 1 for
// Mamba: 1 / sqrt(layers). Biases of linear layers are zero there, that of the convolution is PyTorch's.
Values first_values(const NamedTensor& tensor, std::int64_t layers, const Initializer& draw) {
  const double bound = 1 / std::sqrt(static_cast<double>(tensor.fan_in));
  switch (tensor.start) {
    case Start::zeros:
      return Initializer::constant(tensor.shape, 0);
    case Start::ones:
      return Initializer::constant(tensor.shape, 1);
    case Start::uniform:
      return draw.uniform(tensor.name, tensor.shape, bound);
    case Start::residual:
      return draw.uniform(tensor.name, tensor.shape, bound / std::sqrt(static_cast<double>(layers)));
    case Start::dt_bias:
      return draw.drawn(tensor.name, tensor.shape, dt_bias);
    case Start::counts:
      break;
  }
  Values logs = Initializer::constant(tensor.shape, 0);
  const auto columns = static_cast<std::size_t>(tensor.shape[1]);
  for (std::size_t i = 0; i < logs.size(); ++i) {
    logs[i] = static_cast<float>(exact_log(static_cast<double>(i % columns + 1)));
  }
  return logs;
}

}  // namespace

std::vector<InitialTensor> initial_weights(SizeReader sizes, const Initializer& draw) {
  Weights places;
  places.config = config_of(sizes);
  const std::int64_t layers = places.config.n_layer;
  places.layers.resize(static_cast<std::size_t>(layers));
  const std::vector<NamedTensor> tensors = state_spaces_tensors(&places, {});
  check_count(tensors);
  std::vector<InitialTensor> made;
  for (const NamedTensor& tensor : tensors) {
    made.push_back({tensor.name, tensor.shape, first_values(tensor, layers, draw)});
  }
  return made;
}

}  // namespace exphil::core::mamba1
