#include <algorithm>
#include <cstdint>

#include "cuda/policy/pack.hpp"

namespace exphil::cuda {
namespace {

// copy(place in the kernels' layout, place in the public one) for every value of a state.
template <class Copy>
void for_each_value(const PolicyDims& dims, Copy copy) {
  const core::Network& from = dims.config.network;
  const policy::Network& n = dims.network();
  std::int64_t base = 0;
  for (const LoweredBlock& layer : dims.lowered.layers) {
    for (const LoweredPhase& phase : layer) {
      if (phase.state == core::kNone) continue;
      const core::StatePart& part = from.state(phase.state);
      const bool scan = phase.phase.kind == policy::Kind::scan;
      const policy::Scan& s = n.scans[phase.phase.index];
      const policy::Convolution& c = n.convolutions[phase.phase.index];
      const std::int64_t first = base + (scan ? s.state_at : c.state_at), at = from.state_at(phase.state);
      for (std::int64_t i = 0; i < part.size(); ++i) {
        const std::int64_t row = i / part.columns, column = i % part.columns;
        copy(first + (scan ? row * n.size(s.b) + column : column * n.size(c.in) + row), at + i);
      }
    }
    base += n.layer_floats;
  }
}

}  // namespace

void pack_state(const PolicyDims& dims, const float* values, float* packed) {
  std::fill(packed, packed + dims.network().state_floats(), 0.0f);
  for_each_value(dims, [&](std::int64_t inside, std::int64_t outside) { packed[inside] = values[outside]; });
}

void unpack_state(const PolicyDims& dims, const float* packed, float* values) {
  for_each_value(dims, [&](std::int64_t inside, std::int64_t outside) { values[outside] = packed[inside]; });
}

}  // namespace exphil::cuda
