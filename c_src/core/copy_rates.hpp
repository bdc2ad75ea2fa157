// How fast bytes move where a backend runs: the ceilings that `mix exphil.bench` holds its results against.
#pragma once

namespace exphil::core {

// Bytes a second, each the best of several copies that are far larger than the last cache. `memory` counts
// the bytes read and the bytes written: a kernel that reads n bytes and writes m cannot take less than
// (n + m) / memory unless they are in a cache.
struct CopyRates {
  double to_device = 0;    // from the VM's memory to where the work is done; the host: as `memory`
  double from_device = 0;  // and back
  double memory = 0;       // inside the memory where the work is done
};

}  // namespace exphil::core
