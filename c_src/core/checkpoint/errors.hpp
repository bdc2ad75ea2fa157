// The errors of files that are no checkpoints.
#pragma once

#include "core/error.hpp"

namespace exphil::core {

template <class... Parts>
[[noreturn]] void bad(const Parts&... parts) {
  fail(ErrorKind::invalid_checkpoint, "path", parts...);
}

}  // namespace exphil::core
