#include "core/trunk/edifice_loader.hpp"

#include <algorithm>
#include <utility>

#include "core/hash.hpp"
#include "core/limits.hpp"

namespace exphil::core {

EdificeLoader::EdificeLoader(const Checkpoint& file, const PolicyLoadOptions& options, std::string prefix,
                             float epsilon, const std::string& trunk)
    : file_(file),
      stated_(file_),
      tensors_(stated_.relevant()),
      reader_(tensors_, {"path", file.name(), "a policy of " + trunk}, options.check_finite),
      prefix_(std::move(prefix)),
      epsilon_(norm_epsilon(file, options, epsilon)),
      window_(stated_.window(options)) {}

void EdificeLoader::infer_ends() {
  const std::string input = "input_projection.kernel";
  projects_ = has_prefix(tensors_, "input_projection.");
  d_input_ = projects_ ? reader_.shape(input, 2, "{d_input, units}")[0] : units_;
  require_limit(d_input_, kMaxDim, "d_input", input);
  while (layers_ <= kMaxLayers && has_layer(layers_)) ++layers_;
  require_limit(layers_, kMaxLayers, "the number of layers", layer_name(0));
  heads_ = stated_.heads(reader_, tensors_);
  d_output_ = linear_outputs(reader_, tensors_, heads_);
}

// Layers are numbered from 1 without gaps; a gap shows as a tensor that is not read.
bool EdificeLoader::has_layer(std::int64_t layer) const {
  return has_prefix(tensors_, layer_name(layer) + "_") || has_prefix(tensors_, layer_name(layer) + ".");
}

void EdificeLoader::compare_with_build() const {
  stated_.compare_ends(d_input_, heads_);
  stated_.compare("hidden_size", units_);
  stated_.compare("num_layers", layers_);
}

void EdificeLoader::input() {
  const Span hidden{n_.hidden, 0, units_};
  if (projects_) {
    n_.input = {dense("input_projection", b_.all(n_.frame), hidden)};
  } else {
    n_.input = {Copy{b_.all(n_.frame), hidden}};
  }
}

Norm EdificeLoader::norm(const std::string& name, const Span& in, const Span& out) {
  const Norm made = b_.norm(in, out, name, NormKind::layer, epsilon_, true);
  parameters_.add(name + ".gamma", {in.size}, "{size}", made.weight);
  parameters_.add(name + ".beta", {in.size}, "{size}", made.bias);
  return made;
}

Product EdificeLoader::dense(const std::string& name, const Span& in, const Span& out) {
  const Product made = b_.product(in, out, name, true);
  parameters_.add(name + ".kernel", {in.size, out.size}, "{in, out}", made.weight);
  parameters_.add(name + ".bias", {out.size}, "{out}", made.bias);
  return made;
}

void EdificeLoader::output(const std::string& norm_name) {
  const Span hidden{n_.hidden, 0, units_};
  const VectorId final = b_.vector("final", units_);
  n_.output.emplace_back(norm(norm_name, hidden, b_.all(final)));
  parameters_.add_outputs(b_.all(final), heads_, d_output_, &b_);
}

PolicyConfig EdificeLoader::config(const char* trunk) {
  PolicyConfig config;
  config.trunk = trunk;
  config.d_input = d_input_, config.d_output = n_.size_of(n_.outs);
  config.groups = groups_of(heads_);
  config.constants = std::move(constants_);
  config.window = window_;
  config.facts = {{"d_model", units_}, {"norm_epsilon", static_cast<double>(epsilon_)}};
  config.identity = {trunk, hex(hash64(&epsilon_, sizeof epsilon_))};
  for (const ConstantTensor& key : config.constants) {
    config.identity.push_back(hex(hash64(key.bytes.data(), key.bytes.size())));
  }
  config.network = std::move(n_);
  config.products = products_of(config.network);
  return config;
}

PolicyWeights EdificeLoader::read(PolicyConfig config, const std::vector<std::pair<WeightId, float>>& fixed) {
  PolicyWeights policy;
  policy.config = std::move(config);
  policy.parameters = std::move(parameters_.all);
  check(policy.network());
  compare_with_build();
  require_parameters(reader_, policy.parameters);
  policy.values = zeros_of<float>(policy.network());
  for (const auto& [weight, value] : fixed) {
    std::vector<float>& values = policy.values[static_cast<std::size_t>(weight)];
    std::fill(values.begin(), values.end(), value);
  }
  read_parameters(reader_, &policy);
  policy.fingerprint = weights_fingerprint(trained(policy.config), policy.config.identity);
  return policy;
}

// The tensors without keys, which an update of the weights does not have.
TensorMap EdificeLoader::trained(const PolicyConfig& config) const {
  TensorMap kept = tensors_;
  for (const ConstantTensor& constant : config.constants) kept.erase(constant.name);
  return kept;
}

}  // namespace exphil::core
