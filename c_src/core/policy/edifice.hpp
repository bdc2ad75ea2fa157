// Loads policies with Edifice's names. Used by config.cpp only.
#pragma once

#include "core/policy/config.hpp"

namespace exphil::core {

// Decided by its build options, else by the names of its tensors.
bool is_edifice(const Checkpoint& file);

PolicyWeights load_edifice(const Checkpoint& file, const PolicyLoadOptions& options);

}  // namespace exphil::core
