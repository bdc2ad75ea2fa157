#include "core/trunk/mixer_network.hpp"

#include <cmath>

#include "core/limits.hpp"

namespace exphil::core {

void MixerNetwork::begin() {
  n.frame = b.vector("frame", ends_.d_input), n.hidden = b.vector("hidden", ends_.d_model);
  normed_ = b.vector("normed", ends_.d_model);
  const Product in = b.product(all(n.frame), all(n.hidden), "input_proj", true);
  n.input = {in};
  parameters_.add("input_proj.weight", {ends_.d_model, ends_.d_input}, "{d_model, d_input}", in.weight);
  parameters_.add("input_proj.bias", {ends_.d_model}, "{d_model}", in.bias);
}

Block MixerNetwork::begin_layer(std::int64_t index) {
  of_ = "layer " + std::to_string(index) + "'s ";
  const std::string prefix = ends_.prefix + "layers." + std::to_string(index) + ".";
  mixer_ = prefix + "mixer.";
  const Norm norm = b.norm(all(n.hidden), normed(), of_ + "norm", NormKind::rms, ends_.norm_epsilon, false);
  parameters_.add(prefix + "norm.weight", {ends_.d_model}, "{d_model}", norm.weight);
  return {norm};
}

void MixerNetwork::in_proj(const std::vector<Span>& outs, bool bias, Block* block) {
  const Product in = b.split_product(normed(), outs, of_ + "in_proj", bias, block);
  const std::int64_t rows = n.weight(in.weight).rows;
  add("in_proj.weight", {rows, ends_.d_model}, "{projections, d_model}", in.weight);
  add("in_proj.bias", {rows}, "{projections}", in.bias);
}

void MixerNetwork::end_layer(const Span& in, bool bias, Block block) {
  Product out = b.product(in, all(n.hidden), of_ + "out_proj", bias);
  out.adds = true;
  add("out_proj.weight", {ends_.d_model, in.size}, "{d_model, d_inner}", out.weight);
  add("out_proj.bias", {ends_.d_model}, "{d_model}", out.bias);
  block.emplace_back(out);
  n.layers.push_back(std::move(block));
}

WeightId MixerNetwork::weight(const std::string& name, std::int64_t rows, std::int64_t columns,
                              const Shape& shape, const char* axes) {
  const WeightId id = b.weight(of_ + name, rows, columns);
  add(name, shape, axes, id);
  return id;
}

MixerDescription MixerNetwork::end() {
  const VectorId final = b.vector("final", ends_.d_model);
  const Norm norm = b.norm(all(n.hidden), all(final), "norm_f", NormKind::rms, ends_.norm_epsilon, false);
  n.output.emplace_back(norm);
  parameters_.add(ends_.prefix + "norm_f.weight", {ends_.d_model}, "{d_model}", norm.weight);
  const NetworkBuilder::Head head = b.head(all(final), 0, ends_.d_output, true);
  parameters_.add("head.weight", {ends_.d_output, ends_.d_model}, "{d_output, d_model}", head.head);
  parameters_.add("head.bias", {ends_.d_output}, "{d_output}", head.head_bias);
  check(n);
  return {std::move(n), std::move(parameters_.list)};
}

MixerEnds take_mixer_ends(SizeReader& sizes) {
  MixerEnds ends;
  ends.d_input = sizes.take("d_input", kMaxDim);
  ends.d_output = sizes.take("d_output", kMaxDim);
  ends.d_model = sizes.take("d_model", kMaxDim);
  ends.layers = sizes.take("layers", kMaxLayers);
  return ends;
}

std::int64_t take_heads(SizeReader& sizes, std::int64_t d_model, std::int64_t* headdim) {
  const std::int64_t d_inner = d_model * sizes.take("expand", kMaxDim / d_model, 2);
  *headdim = sizes.take("headdim", kMaxDim, 64);
  if (d_inner % *headdim != 0) {
    fail(ErrorKind::invalid_argument, ":headdim", ":headdim is ", *headdim, ", which does not divide the ",
         d_inner, " channels of a layer (expand times d_model)");
  }
  return d_inner / *headdim;
}

void require_groups(std::int64_t groups, std::int64_t heads) {
  if (heads % groups == 0) return;
  fail(ErrorKind::invalid_argument, ":ngroups", ":ngroups is ", groups, ", which does not divide the ", heads,
       " heads of a layer");
}

std::vector<float> initial_mixer_values(const PolicyParameter& tensor, const MixerEnds& ends,
                                        const Initializer& draw) {
  const auto is = [&tensor](const char* end) { return ends_with(tensor.name, end); };
  if (is("norm.weight") || is("norm_f.weight") || is("mixer.D"))
    return Initializer::constant(tensor.shape, 1);
  if (is("dt_bias")) return draw.drawn(tensor.name, tensor.shape, initial_dt_bias);
  if (is("bias") && !is("conv1d.bias")) return Initializer::constant(tensor.shape, 0);
  const double layers = is("out_proj.weight") ? static_cast<double>(ends.layers) : 1;
  const auto fan_in = static_cast<double>(tensor.shape[tensor.shape.rank() - 1]);
  return draw.uniform(tensor.name, tensor.shape, 1 / std::sqrt(fan_in * layers));
}

PolicyWeights read_mixers(const Checkpoint& file, CheckpointReader& reader, PolicyConfig config,
                          MixerDescription description) {
  PolicyWeights policy;
  policy.config = std::move(config);
  policy.config.network = std::move(description.network);
  policy.config.products = products_of(policy.config.network);
  policy.parameters = std::move(description.parameters);
  require_parameters(reader, policy.parameters);
  policy.values = zeros_of<float>(policy.network());
  read_parameters(reader, &policy);
  policy.fingerprint = weights_fingerprint(file.tensors(), policy.config.identity);
  return policy;
}

}  // namespace exphil::core
