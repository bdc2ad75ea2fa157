// The CPU as a core::Backend. Callers: nif/, tests, benchmarks. Any thread.
#pragma once

#include <memory>

#include "core/backend.hpp"

namespace exphil::host {

// One object per process, created on the first call.
std::shared_ptr<core::Backend> host_backend();

}  // namespace exphil::host
