// Policies with Edifice's names: what load_weights does with them. Used by config.cpp alone.
#pragma once

#include "core/policy/config.hpp"

namespace exphil::core {

// By its build options, else by the names of its tensors.
bool is_edifice(const Checkpoint& file);

PolicyWeights load_edifice(const Checkpoint& file, const PolicyLoadOptions& options);

}  // namespace exphil::core
