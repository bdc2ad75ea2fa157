#include "core/trunk/gated/gated.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/limits.hpp"
#include "core/trunk/edifice.hpp"
#include "core/trunk/gated/description.hpp"
#include "core/trunk/gated/initial.hpp"
#include "core/trunk/gated/initial_state.hpp"

namespace exphil::core::gated {

namespace {

class Loader {
 public:
  Loader(const Checkpoint& file, const PolicyLoadOptions& options)
      : stated_(file),
        names_(*names_of(stated_.architecture())),
        tensors_(stated_.relevant()),
        reader_(tensors_, {"path", file.name(), std::string("a policy of ") + names_.architecture},
                options.check_finite),
        window_(stated_.window(options)) {
    s_.names = &names_;
    s_.epsilon = norm_epsilon(file, options, names_.default_epsilon());
    for (const auto& option : options.trunk) {
      fail(ErrorKind::invalid_argument, ":" + option.first, ":", option.first,
           " is not an option of a policy of ", names_.architecture);
    }
  }

  PolicyWeights load() {
    infer();
    Description made = describe(s_);
    for (std::size_t i = 0; i < made.keys.size(); ++i) begin(made.keys[i], &made.network.states[i]);
    PolicyWeights policy;
    policy.config = config(std::move(made.network));
    policy.parameters = std::move(made.parameters);
    check(policy.network());
    compare_with_build();
    require_parameters(reader_, policy.parameters);
    policy.values = zeros_of<float>(policy.network());
    read_parameters(reader_, &policy);
    policy.fingerprint = weights_fingerprint(trained(policy.config), policy.config.identity);
    return policy;
  }

 private:
  void infer() {
    const std::string first = names_.layer(0);
    s_.fused = names_.recurrent() && has_prefix(tensors_, first + "_input_proj.");
    const std::string kernel = !names_.recurrent() ? first + "_" + names_.gates[0] + ".kernel"
                               : s_.fused          ? first + "_fused_scan." + first + "_recurrent_kernel"
                                                   : first + ".hidden_kernel.wh" + names_.gates[0];
    s_.units = reader_.shape(kernel, 2, s_.fused ? "{units, gates * units}" : "{units, units}")[0];
    require_limit(s_.units, kMaxDim, "the number of units", kernel);
    s_.projects = has_prefix(tensors_, "input_projection.");
    const std::string input = s_.projects ? "input_projection.kernel" : "input_ln.gamma";
    if (s_.projects || names_.recurrent()) {
      s_.d_input =
          reader_.shape(input, s_.projects ? 2 : 1, s_.projects ? "{d_input, units}" : "{d_input}")[0];
    } else {
      s_.d_input = s_.units;  // the first layer adds to what it reads
    }
    require_limit(s_.d_input, kMaxDim, "d_input", input);
    while (s_.layers <= kMaxLayers && has_layer(s_.layers)) ++s_.layers;
    require_limit(s_.layers, kMaxLayers, "the number of layers", first);
    s_.heads = stated_.heads(reader_, tensors_);
    s_.d_output = linear_outputs(reader_, tensors_, s_.heads);
  }

  // Layers are numbered from 1 without gaps; a gap shows as a tensor that is not read.
  bool has_layer(std::int64_t layer) const {
    const std::string name = names_.layer(layer);
    return has_prefix(tensors_, name + "_") || has_prefix(tensors_, name + ".");
  }

  void compare_with_build() const {
    stated_.compare_ends(s_.d_input, s_.heads);
    stated_.compare("hidden_size", s_.units);
    stated_.compare("num_layers", s_.layers);
  }

  // What Axon draws from these keys.
  void begin(const std::vector<std::string>& keys, StatePart* state) {
    for (const std::string& name : keys) {
      const std::vector<float> values = initial_state(take_key(name), s_.units);
      state->initial.insert(state->initial.end(), values.begin(), values.end());
    }
  }

  RandomKey take_key(const std::string& name) {
    const TensorView& view = reader_.take_as_it_is(name, Dtype::u32, {2}, "{2}");
    RandomKey key{};
    std::memcpy(key.data(), view.data, sizeof(key));
    constants_.push_back({name, view.dtype, view.shape, {static_cast<const char*>(view.data), sizeof(key)}});
    return key;
  }

  // The tensors without keys, which an update of the weights does not have.
  TensorMap trained(const PolicyConfig& config) const {
    TensorMap kept = tensors_;
    for (const ConstantTensor& constant : config.constants) kept.erase(constant.name);
    return kept;
  }

  PolicyConfig config(Network network) {
    PolicyConfig config;
    config.trunk = names_.architecture;
    config.d_input = s_.d_input, config.d_output = network.size_of(network.outs);
    config.groups = groups_of(s_.heads);
    config.constants = std::move(constants_);
    config.window = window_;
    config.state_signature = {s_.layers, s_.units, formulas::states_of(names_.cell), 0};
    config.facts = {{"d_model", s_.units},
                    {"norm_epsilon", static_cast<double>(s_.epsilon)},
                    {"layout", std::string(s_.fused ? "fused" : "layers")}};
    config.identity = {names_.architecture, hex(hash64(&s_.epsilon, sizeof s_.epsilon))};
    for (const ConstantTensor& key : config.constants) {
      config.identity.push_back(hex(hash64(key.bytes.data(), key.bytes.size())));
    }
    config.network = std::move(network);
    config.products = products_of(config.network);
    return config;
  }

  const EdificeFile stated_;
  const Names& names_;
  const TensorMap tensors_;
  CheckpointReader reader_;
  const std::int64_t window_;
  Sizes s_;
  std::vector<ConstantTensor> constants_;
};

PolicyWeights load(const Checkpoint& file, const PolicyLoadOptions& options) {
  return Loader(file, options).load();
}

}  // namespace

std::vector<Trunk> trunks() {
  std::vector<Trunk> all;
  for (const Names& known : all_names()) {
    all.push_back({known.architecture,
                   {known.architecture},
                   {known.architecture},
                   [](const TensorMap&) { return false; },
                   load,
                   initial_weights});
  }
  return all;
}

}  // namespace exphil::core::gated
