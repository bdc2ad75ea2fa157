#include "core/trunk/load.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/policy/rounding.hpp"
#include "core/trunk/deltanet/deltanet.hpp"
#include "core/trunk/edifice.hpp"
#include "core/trunk/gated/gated.hpp"
#include "core/trunk/loading.hpp"
#include "core/trunk/mamba1/mamba1.hpp"
#include "core/trunk/mamba2/mamba2.hpp"
#include "core/trunk/mamba3/mamba3.hpp"
#include "core/trunk/output_groups.hpp"

namespace exphil::core {

// A trunk is a line here and its folder.
const std::vector<Trunk>& trunks() {
  static const auto* const all = [] {
    auto* const made = new std::vector<Trunk>{mamba1::trunk()};  // never destroyed
    for (const Trunk& trunk : gated::trunks()) made->push_back(trunk);
    made->push_back(deltanet::trunk());
    made->push_back(mamba3::trunk());
    made->push_back(mamba2::trunk());
    return made;
  }();
  return *all;
}

namespace {

const Trunk& trunk_with_edifices_names(const Checkpoint& file) {
  const EdificeFile edifice(file);
  const std::string stated = edifice.architecture();
  std::vector<std::string> read;
  for (const Trunk& trunk : trunks()) {
    const auto& names = edifice.is_policy() ? trunk.backbones : trunk.architectures;
    if (std::find(names.begin(), names.end(), stated) != names.end()) return trunk;
    read.insert(read.end(), names.begin(), names.end());
  }
  edifice.refuse(stated, read);
}

const Trunk& trunk_of(const Checkpoint& file) {
  if (has_edifices_names(file)) return trunk_with_edifices_names(file);
  for (const Trunk& trunk : trunks()) {
    if (trunk.has_names(file.tensors())) return trunk;
  }
  return trunks().front();  // whose error names what is missing
}

CheckpointReader reader_of_given(const TensorMap& tensors) {
  return {tensors, {"weights", "the weights", "this policy", false}, true};
}

std::shared_ptr<PolicyWeights> with_values(const PolicyWeights& policy, PolicyValues<float> values) {
  return std::make_shared<PolicyWeights>(
      PolicyWeights{policy.config, std::move(values), 0, policy.parameters});
}

std::shared_ptr<const PolicyWeights> with_fingerprint(std::shared_ptr<PolicyWeights> weights,
                                                      std::uint64_t of_tensors) {
  weights->fingerprint = fingerprint_with_states(of_tensors, weights->config.states);
  return weights;
}

}  // namespace

std::shared_ptr<const PolicyWeights> replace_weights(const PolicyWeights& policy, const TensorMap& tensors) {
  CheckpointReader reader = reader_of_given(tensors);
  auto weights = with_values(policy, copy_of(policy.values));
  read_parameters(reader, weights.get());
  return with_fingerprint(weights, weights_fingerprint(tensors, weights->config.identity));
}

std::shared_ptr<const PolicyWeights> replace_weights(const PolicyWeights& policy,
                                                     PolicyValues<float> values) {
  const TensorMap none;
  auto weights = with_values(policy, std::move(values));
  check_parameters(reader_of_given(none), weights.get());
  return with_fingerprint(weights, parameters_fingerprint(*weights));
}

namespace {

std::shared_ptr<const PolicyWeights> load(const Checkpoint& file, const PolicyLoadOptions& options,
                                          bool heads_from_option) {
  PolicyWeights weights = trunk_of(file).load(file, options);
  name_outputs(file.metadata(), heads_from_option, &weights.config);
  return std::make_shared<const PolicyWeights>(
      with_states(rounded_weights(weights, options.precision), options.states));
}

}  // namespace

std::shared_ptr<const PolicyWeights> load_weights(const TensorMap& tensors,
                                                  std::map<std::string, std::string> metadata,
                                                  const PolicyLoadOptions& options) {
  try {
    return load(Checkpoint::of(tensors, std::move(metadata)), options, true);
  } catch (const Error& error) {
    if (error.argument() != "path") throw;
    fail(error.kind(), "weights", error.what());
  }
}

std::shared_ptr<const PolicyWeights> load_weights(const Checkpoint& file, const PolicyLoadOptions& options) {
  return load(file, options, false);
}

}  // namespace exphil::core
