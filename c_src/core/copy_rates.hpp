// Measured copy rates of a backend: the upper bounds that `mix exphil.bench` compares its results with.
#pragma once

namespace exphil::core {

// Bytes a second, each the best of several copies that are far larger than the last-level cache. `memory`
// counts bytes read plus bytes written: a kernel that reads n bytes and writes m takes at least (n + m) /
// memory, unless they are cached.
struct CopyRates {
  double to_device = 0;    // from the VM's memory to the backend's; equals `memory` on the host
  double from_device = 0;  // the opposite direction
  double memory = 0;       // within the backend's memory
};

}  // namespace exphil::core
