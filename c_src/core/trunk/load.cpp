#include "core/trunk/load.hpp"

#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/policy/rounding.hpp"
#include "core/trunk/loading.hpp"
#include "core/trunk/mamba1/loaders.hpp"
#include "core/trunk/output_groups.hpp"

namespace exphil::core {

namespace {

constexpr float kNormEpsilon = 1e-5f;

// Rejects a value that f32 rounds to zero or infinity.
bool to_epsilon(double value, float* epsilon) {
  *epsilon = static_cast<float>(value);
  return std::isfinite(*epsilon) && *epsilon > 0;
}

}  // namespace

void require_limit(std::int64_t size, std::int64_t limit, const std::string& what, const std::string& name) {
  if (size > limit) {
    fail(ErrorKind::limit_exceeded, "path", what, " is ", size, " by tensor \"", name, "\"; the limit is ",
         limit);
  }
}

float norm_epsilon(const Checkpoint& file, const PolicyLoadOptions& options) {
  const char* const range = "must be a number that f32 holds as positive and finite; got ";
  float epsilon = kNormEpsilon;
  const auto found = file.metadata().find("norm_epsilon");
  if (options.norm_epsilon) {
    if (!to_epsilon(*options.norm_epsilon, &epsilon)) {
      fail(ErrorKind::invalid_argument, ":norm_epsilon", ":norm_epsilon ", range, *options.norm_epsilon);
    }
  } else if (found != file.metadata().end()) {
    const std::string& text = found->second;
    const char* const end = text.data() + text.size();
    double value = 0;
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end || !to_epsilon(value, &epsilon)) {
      fail(ErrorKind::invalid_checkpoint, "path", "the metadata's norm_epsilon ", range, quote(text));
    }
  }
  return epsilon;
}

std::uint64_t weights_fingerprint(const TensorMap& tensors, const std::vector<std::string>& identity) {
  HashedParts parts;
  for (const auto& [name, view] : tensors) {
    parts.add(name);
    parts.add(dtype_name(view.dtype));
    parts.add(view.shape.to_string());
    parts.add(hex(hash64(view.data, view.bytes)));
  }
  for (const std::string& part : identity) parts.add(part);
  return parts.hash64();
}

void check_derived(const CheckpointReader& reader, const PolicyWeights& weights) {
  const Network& network = weights.network();
  for (std::size_t id = 0; id < network.weights.size(); ++id) {
    const WeightId source = network.weights[id].negative_exp_of;
    for (const PolicyParameter& parameter : weights.parameters) {
      if (source == kNone || parameter.weight != source) continue;
      reader.check_finite(weights.values[id], parameter.name, " as A = -exp(A_log)");
    }
  }
}

std::shared_ptr<const PolicyWeights> replace_weights(const PolicyWeights& policy, const TensorMap& tensors) {
  CheckpointReader reader(tensors, {"weights", "the weights", "this model", false}, true);
  auto weights = std::make_shared<PolicyWeights>(policy);
  for (const PolicyParameter& parameter : policy.parameters) {
    const std::vector<float> values = reader.take(parameter.name, parameter.shape, parameter.axes);
    std::vector<float>& to = weights->values[static_cast<std::size_t>(parameter.weight)];
    for (std::size_t i = 0; i < values.size(); ++i) to[parameter.place(i)] = values[i];
  }
  reader.require_all_taken();
  derive(weights->network(), &weights->values);
  check_derived(reader, *weights);
  weights->fingerprint = weights_fingerprint(tensors, weights->config.identity);
  return weights;
}

std::shared_ptr<const PolicyWeights> load_weights(const TensorMap& tensors,
                                                  std::map<std::string, std::string> metadata,
                                                  const PolicyLoadOptions& options) {
  try {
    return load_weights(Checkpoint::of(tensors, std::move(metadata)), options);
  } catch (const Error& error) {
    if (error.argument() != "path") throw;
    fail(error.kind(), "weights", error.what());
  }
}

std::shared_ptr<const PolicyWeights> load_weights(const Checkpoint& file, const PolicyLoadOptions& options) {
  PolicyWeights weights = mamba1::is_edifice(file) ? mamba1::load_edifice(file, options)
                                                   : mamba1::load_state_spaces(file, options);
  name_outputs(file.metadata(), &weights.config);
  return std::make_shared<const PolicyWeights>(rounded_weights(weights, options.precision));
}

}  // namespace exphil::core
