#include "core/trunk/initial.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "core/text.hpp"
#include "core/trunk/loading.hpp"

namespace exphil::core {

std::int64_t SizeReader::take(const std::string& name, std::int64_t limit, std::int64_t otherwise) {
  const auto found =
      std::find_if(sizes_.begin(), sizes_.end(), [&name](const auto& size) { return size.first == name; });
  std::int64_t value = otherwise;
  if (found != sizes_.end()) {
    value = found->second;
    sizes_.erase(found);
  }
  if (value < 1) {
    fail(ErrorKind::invalid_argument, ":" + name, ":", name, " must be a positive integer, got ", value);
  }
  if (value > limit) {
    fail(ErrorKind::limit_exceeded, ":" + name, ":", name, " is ", value, "; the limit is ", limit);
  }
  return value;
}

std::int64_t SizeReader::take(const std::string& name, std::int64_t limit) {
  if (!has(name)) fail(ErrorKind::invalid_argument, ":" + name, ":", name, " must be given");
  return take(name, limit, 0);
}

bool SizeReader::has(const std::string& name) const {
  return std::any_of(sizes_.begin(), sizes_.end(), [&name](const auto& size) { return size.first == name; });
}

void SizeReader::require_all_taken(const std::string& trunk) const {
  if (sizes_.empty()) return;
  const std::string& name = sizes_.front().first;
  fail(ErrorKind::invalid_argument, ":" + name, ":", name, " is not a size of the trunk :", trunk);
}

TensorView InitialTensor::view() const {
  if (!words.empty()) return {Dtype::u32, shape, words.data(), words.size() * sizeof(words[0])};
  return {Dtype::f32, shape, values.data(), values.size() * sizeof(float)};
}

std::vector<float> Initializer::constant(const Shape& shape, float value) {
  return std::vector<float>(static_cast<std::size_t>(shape.elements("weights")), value);
}

std::vector<float> Initializer::uniform(const std::string& name, const Shape& shape, double bound) const {
  return drawn(name, shape, [bound](double u) { return (2 * u - 1) * bound; });
}

std::vector<float> Initializer::as_axon(const std::string& name, const Shape& shape) const {
  if (shape.rank() == 1) return constant(shape, ends_with(name, ".gamma") ? 1 : 0);
  auto fans = static_cast<double>(shape[0] + shape[1]);
  for (int i = 2; i < shape.rank(); ++i) fans *= static_cast<double>(shape[i]);
  return uniform(name, shape, std::sqrt(6.0 / fans));
}

std::vector<std::uint32_t> Initializer::words(const std::string& name, std::size_t count) const {
  std::vector<std::uint32_t> drawn(count);
  const std::uint64_t stream = hash64(name.data(), name.size());
  for (std::size_t i = 0; i < count; ++i) drawn[i] = word_at(seed_, stream, i);
  return drawn;
}

double initial_dt_bias(double u) {
  constexpr double kLeast = 0.001, kMost = 0.1;
  const double low = exact_log(kLeast), span = exact_log(kMost) - low;
  const double part = u * span, dt = exact_exp(low + part);
  return dt + exact_log(1 - exact_exp(-dt));
}

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

void require_weight_limit(const std::vector<PolicyParameter>& tensors) {
  constexpr std::int64_t kMostWeights = std::int64_t{1} << 31;
  std::int64_t count = 0;
  for (const PolicyParameter& tensor : tensors) {
    count += tensor.shape.elements(":d_model");
    if (count > kMostWeights) {
      fail(ErrorKind::limit_exceeded, ":d_model", "a policy of these sizes has more than ", kMostWeights,
           " weights, the limit");
    }
  }
}

std::vector<InitialTensor> initial_weights(const std::string& trunk, const NamedSizes& sizes,
                                           std::uint64_t seed) {
  std::string known;
  for (const Trunk& candidate : trunks()) {
    if (candidate.initial == nullptr) continue;
    if (trunk == candidate.name) return candidate.initial(trunk, SizeReader(sizes), Initializer(seed));
    known += (known.empty() ? ":" : ", :") + std::string(candidate.name);
  }
  fail(ErrorKind::unsupported, "trunk", "trunk must be one of ", known, "; got ", quote(trunk));
}

}  // namespace exphil::core
