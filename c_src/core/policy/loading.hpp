// Shared by the loaders of both namings (config.cpp, edifice.cpp).
#pragma once

#include <string>

#include "core/policy/config.hpp"

namespace exphil::core {

// limit_exceeded where `size`, which tensor `name` defines, is beyond `limit`.
void require_limit(std::int64_t size, std::int64_t limit, const std::string& what, const std::string& name);
float norm_epsilon(const Checkpoint& file, const PolicyLoadOptions& options);
std::uint64_t weights_fingerprint(const Checkpoint& file, const PolicyConfig& config);

}  // namespace exphil::core
