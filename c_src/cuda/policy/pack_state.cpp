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
      const ChannelTable table(n, phase.phase);
      const bool scan = phase.phase.kind == policy::Kind::scan;
      const std::int64_t first =
          base + (scan ? n.scans[phase.phase.index].state_at : n.convolutions[phase.phase.index].state_at);
      for (std::int64_t i = 0; i < part.size(); ++i) {
        copy(first + table.at(i / part.columns, i % part.columns, table.channels),
             from.state_at(phase.state) + i);
      }
    }
    base += n.layer_floats;
  }
}

}  // namespace

ChannelTable::ChannelTable(const policy::Network& n, const policy::Phase& phase)
    : channel_last(phase.kind == policy::Kind::convolution) {
  const policy::Convolution& convolution = n.convolutions[phase.index];
  const policy::Scan& scan = n.scans[phase.index];
  channels = n.size(channel_last ? convolution.in : scan.x);
  each = channel_last ? convolution.taps : n.size(scan.b);
}

void pack_state(const PolicyDims& dims, const float* values, float* packed) {
  std::fill(packed, packed + dims.network().state_floats(), 0.0f);
  for_each_value(dims, [&](std::int64_t inside, std::int64_t outside) { packed[inside] = values[outside]; });
}

void unpack_state(const PolicyDims& dims, const float* packed, float* values) {
  for_each_value(dims, [&](std::int64_t inside, std::int64_t outside) { values[outside] = packed[inside]; });
}

}  // namespace exphil::cuda
