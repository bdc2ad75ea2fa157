#include "core/trunk/loading.hpp"

#include <charconv>
#include <cmath>
#include <system_error>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/work/background.hpp"

namespace exphil::core {

namespace {

// Rejects a value that f32 rounds to zero or infinity.
bool to_epsilon(double value, float* epsilon) {
  *epsilon = static_cast<float>(value);
  return std::isfinite(*epsilon) && *epsilon > 0;
}

void check_derived(const CheckpointReader& reader, const PolicyWeights& policy) {
  const Network& network = policy.network();
  for (std::size_t id = 0; id < network.weights.size(); ++id) {
    const WeightId source = network.weights[id].negative_exp_of;
    for (const PolicyParameter& parameter : policy.parameters) {
      if (source == kNone || parameter.weight != source) continue;
      reader.check_finite(policy.values[id], parameter.name, " as A = -exp(A_log)");
    }
  }
}

}  // namespace

void require_limit(std::int64_t size, std::int64_t limit, const std::string& what, const std::string& name) {
  if (size > limit) {
    fail(ErrorKind::limit_exceeded, "path", what, " is ", size, " by tensor \"", name, "\"; the limit is ",
         limit);
  }
}

float norm_epsilon(const Checkpoint& file, const PolicyLoadOptions& options, float otherwise) {
  const char* const range = "must be a number that f32 holds as positive and finite; got ";
  float epsilon = otherwise;
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
      bad_checkpoint("the metadata's norm_epsilon ", range, quote(text));
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

void require_parameters(const CheckpointReader& reader, const std::vector<PolicyParameter>& parameters) {
  for (const PolicyParameter& p : parameters) reader.require_shape(p.name, p.shape, p.axes);
}

void read_parameters(CheckpointReader& reader, PolicyWeights* policy) {
  for (const PolicyParameter& parameter : policy->parameters) {
    stop_if_abandoned();
    std::vector<float> room;
    const float* const values = reader.take(parameter.name, parameter.shape, parameter.axes, &room);
    put_parameter(parameter, values, &policy->values);
  }
  reader.require_all_taken();
  derive(policy->network(), &policy->values);
  check_derived(reader, *policy);
}

}  // namespace exphil::core
