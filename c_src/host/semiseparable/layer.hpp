// The AR-SSM layer resident on the CPU. Callers: the host backend, tests. Any thread, concurrently.
#pragma once

#include <memory>

#include "core/semiseparable/layer.hpp"

namespace exphil::host {

std::unique_ptr<core::SemiseparableLayer> make_semiseparable(const core::SemiseparableWeights& weights);

}  // namespace exphil::host
