// What the tests of scans over several devices of an emulated machine share.
#pragma once

#include <memory>
#include <vector>

#include "cuda/emulated_gpu.hpp"
#include "cuda/scan/run_case.hpp"

namespace exphil::test {

inline std::vector<std::shared_ptr<cuda::Context>> opened(int devices) {
  std::vector<std::shared_ptr<cuda::Context>> contexts;
  for (int i = 0; i < devices; ++i) contexts.push_back(cuda::Context::open(i));
  return contexts;
}

inline int scans_launched() {
  return emulated_launches("selective_scan_wide") + emulated_launches("selective_scan");
}

// Some of a state is left after a part.
inline ScanSpec long_spec(std::int64_t batch, std::int64_t seq) {
  ScanSpec spec;
  spec.batch = batch, spec.seq = seq, spec.dim = 6, spec.state = 4;
  spec.d = spec.z = spec.dt_bias = spec.initial_state = true;
  spec.options.dt_softplus = true;
  spec.options.dt_max = 0.02f;
  spec.options.algorithm = core::ScanAlgorithm::sequential;
  return spec;
}

}  // namespace exphil::test
