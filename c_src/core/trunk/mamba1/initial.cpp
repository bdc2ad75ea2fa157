#include "core/trunk/initial.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "core/exact_math.hpp"
#include "core/limits.hpp"
#include "core/trunk/load.hpp"
#include "core/trunk/mamba1/mamba1.hpp"

namespace exphil::core::mamba1 {

namespace {

Config config_of(const std::string& trunk, SizeReader& sizes) {
  Config c;
  c.d_input = sizes.take("d_input", kMaxDim);
  c.d_output = sizes.take("d_output", kMaxDim);
  c.d_model = sizes.take("d_model", kMaxDim);
  c.n_layer = sizes.take("layers", kMaxLayers);
  c.d_state = sizes.take("d_state", kMaxState, 16);
  c.d_conv = sizes.take("d_conv", kMaxConvTaps, 4);
  c.d_inner = c.d_model * sizes.take("expand", kMaxDim / c.d_model, 2);
  c.dt_rank = sizes.take("dt_rank", kMaxDim, (c.d_model + 15) / 16);
  sizes.require_all_taken(trunk);
  return c;
}

// log(1), log(2), ... in each row: A = -1, -2, ...
std::vector<float> counts(const Shape& shape) {
  std::vector<float> logs = Initializer::constant(shape, 0);
  const auto columns = static_cast<std::size_t>(shape[1]);
  for (std::size_t i = 0; i < logs.size(); ++i) {
    logs[i] = static_cast<float>(exact_log(static_cast<double>(i % columns + 1)));
  }
  return logs;
}

// As state-spaces/mamba does: mamba_ssm/modules/mamba_simple.py for the mixer, and for what is added to the
// hidden vector _init_weights of mamba_ssm/models/mixer_seq_simple.py, whose n_residuals_per_layer is 1 for
// Mamba: 1 / sqrt(layers). Biases of linear layers are zero there, that of the convolution is PyTorch's.
std::vector<float> first_value(const PolicyParameter& tensor, const Config& c, const Initializer& draw) {
  const auto is = [&tensor](const char* end) { return ends_with(tensor.name, end); };
  const auto uniform = [&](std::int64_t fan_in, double scale) {
    return draw.uniform(tensor.name, tensor.shape, scale / std::sqrt(static_cast<double>(fan_in)));
  };
  if (is("norm.weight") || is("norm_f.weight") || is("mixer.D"))
    return Initializer::constant(tensor.shape, 1);
  if (is("A_log")) return counts(tensor.shape);
  if (is("dt_proj.bias")) return draw.drawn(tensor.name, tensor.shape, initial_dt_bias);
  if (is("conv1d.bias")) return uniform(c.d_conv, 1);
  if (is("bias")) return Initializer::constant(tensor.shape, 0);
  const std::int64_t fan_in = tensor.shape[tensor.shape.rank() - 1];
  return uniform(fan_in, is("out_proj.weight") ? 1 / std::sqrt(static_cast<double>(c.n_layer)) : 1);
}

}  // namespace

std::vector<InitialTensor> initial_weights(const std::string& trunk, SizeReader sizes,
                                           const Initializer& draw) {
  Config c = config_of(trunk, sizes);
  c.has.conv_bias = true;
  const std::vector<PolicyParameter> tensors = state_spaces_parameters(c, describe(c).weights, "backbone.");
  require_weight_limit(tensors);
  std::vector<InitialTensor> made;
  for (const PolicyParameter& tensor : tensors) {
    made.push_back({tensor.name, tensor.shape, first_value(tensor, c, draw), {}});
  }
  return made;
}

}  // namespace exphil::core::mamba1
