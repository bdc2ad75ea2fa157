#include "core/trunk/loading.hpp"

#include <atomic>
#include <charconv>
#include <cmath>
#include <map>
#include <system_error>

#include "core/error.hpp"
#include "core/finite.hpp"
#include "core/hash.hpp"
#include "core/work/background.hpp"
#include "core/work/parallel.hpp"

namespace exphil::core {

namespace {

// Rejects a value that f32 rounds to zero or infinity.
bool to_epsilon(double value, float* epsilon) {
  *epsilon = static_cast<float>(value);
  return std::isfinite(*epsilon) && *epsilon > 0;
}

// Calls each(i) for [0, count), on several threads.
template <class Each>
void for_each(std::size_t count, const Each& each) {
  parallel_for(static_cast<std::int64_t>(count), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) each(static_cast<std::size_t>(i));
  });
}

void derive_and_check(const CheckpointReader& reader, PolicyWeights* policy) {
  const Network& network = policy->network();
  derive(network, &policy->values);
  for (std::size_t id = 0; id < network.weights.size(); ++id) {
    const WeightId source = network.weights[id].negative_exp_of;
    for (const PolicyParameter& parameter : policy->parameters) {
      if (source == kNone || parameter.weight != source) continue;
      reader.check_finite(policy->values[id], parameter.name, " as A = -exp(A_log)");
    }
  }
}

const std::vector<float>& tensor_of(const PolicyParameter& parameter, const PolicyValues<float>& values,
                                    std::vector<float>* room) {
  room->resize(parameter.count());
  copy_parameter(parameter, values, room->data());
  return *room;
}

// hash_of(name, view, room): of the tensor's bytes; called on several threads, each with room of its own.
template <class Hash>
std::uint64_t fingerprint_of(const TensorMap& tensors, const std::vector<std::string>& identity,
                             const Hash& hash_of) {
  std::vector<const TensorMap::value_type*> all;
  for (const auto& tensor : tensors) all.push_back(&tensor);
  std::vector<std::uint64_t> hashes(all.size());
  parallel_for(static_cast<std::int64_t>(all.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> room;
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      hashes[i] = hash_of(all[i]->first, all[i]->second, &room);
  });
  HashedParts parts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [name, view] = *all[i];
    parts.add(name);
    parts.add(dtype_name(view.dtype));
    parts.add(view.shape.to_string());
    parts.add(hex(hashes[i]));
  }
  for (const std::string& part : identity) parts.add(part);
  return parts.hash64();
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
  return fingerprint_of(tensors, identity,
                        [](const std::string&, const TensorView& view, std::vector<float>*) {
                          return hash64(view.data, view.bytes);
                        });
}

std::uint64_t parameters_fingerprint(const PolicyWeights& policy) {
  TensorMap tensors;
  std::map<std::string, const PolicyParameter*> parameters;
  for (const PolicyParameter& p : policy.parameters) {
    tensors[p.name] = {Dtype::f32, p.shape, nullptr, p.count() * sizeof(float)};
    parameters[p.name] = &p;
  }
  return fingerprint_of(tensors, policy.config.identity,
                        [&](const std::string& name, const TensorView& view, std::vector<float>* room) {
                          return hash64(tensor_of(*parameters.at(name), policy.values, room).data(),
                                        view.bytes);
                        });
}

void require_parameters(const CheckpointReader& reader, const std::vector<PolicyParameter>& parameters) {
  for (const PolicyParameter& p : parameters) reader.require_shape(p.name, p.shape, p.axes);
}

void read_parameters(CheckpointReader& reader, PolicyWeights* policy) {
  struct Tensor {
    const PolicyParameter* parameter;
    const float* values;
  };
  std::vector<Tensor> unread;  // put later, on several threads; what is widened is put at once
  for (const PolicyParameter& parameter : policy->parameters) {
    stop_if_abandoned();
    std::vector<float> room;
    const float* const values = reader.take(parameter.name, parameter.shape, parameter.axes, &room);
    room.empty() ? unread.push_back({&parameter, values}) : put_parameter(parameter, values, &policy->values);
  }
  reader.require_all_taken();
  for_each(unread.size(),
           [&](std::size_t i) { put_parameter(*unread[i].parameter, unread[i].values, &policy->values); });
  derive_and_check(reader, policy);
}

void check_parameters(const CheckpointReader& reader, PolicyWeights* policy) {
  std::atomic<bool> finite{true};
  for_each(policy->values.size(), [&](std::size_t id) {
    const std::vector<float>& values = policy->values[id];
    if (!all_finite(values.data(), static_cast<std::int64_t>(values.size()))) finite = false;
  });
  std::vector<float> room;
  for (const PolicyParameter& p : policy->parameters) {  // to name the first one that is not
    if (!finite) reader.check_finite(tensor_of(p, policy->values, &room), p.name, "");
  }
  derive_and_check(reader, policy);
}

}  // namespace exphil::core
