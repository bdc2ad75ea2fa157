// Shared by the loaders of both namings (config.cpp, edifice.cpp).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/reader.hpp"
#include "core/policy/config.hpp"

namespace exphil::core {

// limit_exceeded where `size`, which tensor `name` defines, is beyond `limit`.
void require_limit(std::int64_t size, std::int64_t limit, const std::string& what, const std::string& name);
float norm_epsilon(const Checkpoint& file, const PolicyLoadOptions& options);
std::uint64_t weights_fingerprint(const TensorMap& tensors, const PolicyConfig& config);

// Reads tensors into the vectors of `weights` and lists them as its parameters. The numbers of layers and
// heads must be set before the first.
class ParameterReader {
 public:
  ParameterReader(CheckpointReader& reader, PolicyWeights* weights);

  // Appends the tensor to `to`, one of the vectors of the weights.
  void take(const std::string& name, const Shape& shape, const char* axes, std::vector<float>& to,
            bool transposed = false);

 private:
  CheckpointReader& reader_;
  PolicyWeights& weights_;
  std::map<const std::vector<float>*, std::size_t> vectors_;  // the place of each in vectors_of
};

// Sets every layer's A: -exp(a_log), or -(1..d_state) where there is no a_log. Throws where A is not finite.
void derive_a(const CheckpointReader& reader, PolicyWeights* weights);

}  // namespace exphil::core
