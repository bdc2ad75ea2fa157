// A policy resident in host memory (core/model.hpp): packed weights, states as plain buffers, workspaces in a
// pool so that calls on different states run at the same time without allocating.
#pragma once

#include <memory>

#include "core/model.hpp"

namespace exphil::host {

std::unique_ptr<core::Model> make_model(const core::MambaWeights& weights, const core::ModelOptions& options);

}  // namespace exphil::host
