// What the loaders of all trunks share. Used in core/trunk/ only; pure functions.
#pragma once

#include <string>
#include <vector>

#include "core/checkpoint/reader.hpp"
#include "core/trunk/load.hpp"

namespace exphil::core {

// limit_exceeded where `size`, which tensor `name` defines, is beyond `limit`.
void require_limit(std::int64_t size, std::int64_t limit, const std::string& what, const std::string& name);
// The option takes precedence over the metadata, the metadata over the default of 1e-5.
float norm_epsilon(const Checkpoint& file, const PolicyLoadOptions& options);
// identity: PolicyConfig::identity
std::uint64_t weights_fingerprint(const TensorMap& tensors, const std::vector<std::string>& identity);
// Throws where a weight that follows from a tensor, such as A = -exp(A_log), is not finite.
void check_derived(const CheckpointReader& reader, const PolicyWeights& weights);

}  // namespace exphil::core
