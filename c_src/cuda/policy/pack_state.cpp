#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cuda/policy/pack.hpp"

namespace exphil::cuda {
namespace {

std::int64_t state_at(const policy::Network& n, const policy::Phase& phase) {
  if (phase.kind == policy::Kind::cell) return n.cells[phase.index].state_at;
  if (phase.kind == policy::Kind::heads) return n.heads[phase.index].state_at;
  if (phase.kind == policy::Kind::angle) return n.angles[phase.index].state_at;
  if (phase.kind == policy::Kind::delay) return n.delays[phase.index].state_at;
  return phase.kind == policy::Kind::scan ? n.scans[phase.index].state_at
                                          : n.convolutions[phase.index].state_at;
}

// Where a value is in the kernels' layout: its byte, and how it is stored there.
struct StoredPlace {
  std::int64_t byte;
  core::Precision stored;
};

bool is_matrix(policy::Kind kind) {
  return kind == policy::Kind::scan || kind == policy::Kind::heads;
}

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
      const core::Precision stored = is_matrix(phase.phase.kind) ? dims.config.states : core::Precision::f32;
      const std::int64_t first = 4 * (base + state_at(n, phase.phase));
      const auto place = [&](std::int64_t value) {
        return StoredPlace{first + value * core::stored_bytes(stored), stored};
      };
      if (phase.phase.kind == policy::Kind::angle || phase.phase.kind == policy::Kind::delay) {
        for (std::int64_t i = 0; i < part.size(); ++i) copy(place(i), from.state_at(phase.state) + i);
        continue;
      }
      const ChannelTable table(n, phase.phase, ChannelTable::Of::state);
      const bool convolves = phase.phase.kind == policy::Kind::convolution;
      const std::int64_t rows = convolves ? n.values(n.convolutions[phase.phase.index].in) : part.rows;
      const std::int64_t outside = from.state_at(phase.state) + phase.first_channel * part.columns;
      for (std::int64_t i = 0; i < rows * part.columns; ++i) {
        copy(place(table.at(i / part.columns, i % part.columns, table.channels)), outside + i);
      }
    }
    base += n.layer_floats;
  }
}

}  // namespace

ChannelTable::ChannelTable(const policy::Network& n, const policy::Phase& phase, Of of)
    : channel_last(phase.kind == policy::Kind::convolution) {
  if (phase.kind == policy::Kind::cell) {
    const policy::GatedCell& cell = n.cells[phase.index];
    channels = formulas::states_of(cell.cell), each = n.size(cell.x[0]);
    return;
  }
  if (phase.kind == policy::Kind::heads) {
    const policy::Heads& heads = n.heads[phase.index];
    channels = n.size(heads.value);
    each = of == Of::weights ? heads.weights() : policy::Lanes(policy::keys_of(n, heads)).size();
    return;
  }
  if (phase.kind == policy::Kind::gate) {
    channels = n.values(n.gates[phase.index].out), each = 2 * n.gates[phase.index].ranks;
    return;
  }
  if (phase.kind == policy::Kind::rotation) {
    const policy::Rotation& rotation = n.rotations[phase.index];
    channels = rotation.heads, each = rotation.ranks * policy::size_of(n, rotation);
    return;
  }
  const policy::Convolution& convolution = n.convolutions[phase.index];
  const policy::Scan& scan = n.scans[phase.index];
  channels = n.size(channel_last ? convolution.in : scan.x);
  each = channel_last ? convolution.taps : n.size(scan.b);
}

std::vector<float> initial_state(const PolicyDims& dims) {
  const std::vector<core::StatePart>& states = dims.config.network.states;
  if (std::all_of(states.begin(), states.end(), [](const auto& part) { return part.initial.empty(); }))
    return {};
  std::vector<float> values;
  for (const core::StatePart& part : states) {
    values.insert(values.end(), part.initial.begin(), part.initial.end());
    if (part.initial.empty()) values.resize(values.size() + static_cast<std::size_t>(part.size()));
  }
  std::vector<float> packed(static_cast<std::size_t>(dims.network().state_floats()));
  pack_state(dims, values.data(), packed.data());
  return packed;
}

void pack_state(const PolicyDims& dims, const float* values, float* packed) {
  std::fill(packed, packed + dims.network().state_floats(), 0.0f);
  auto* const bytes = reinterpret_cast<char*>(packed);
  for_each_value(dims, [&](const StoredPlace& inside, std::int64_t outside) {
    const std::uint32_t bits = core::stored_state(inside.stored, values[outside]);
    const auto size = static_cast<std::size_t>(core::stored_bytes(inside.stored));
    std::memcpy(bytes + inside.byte, &bits, size);  // the low bytes
  });
}

void unpack_state(const PolicyDims& dims, const float* packed, float* values) {
  const auto* const bytes = reinterpret_cast<const char*>(packed);
  for_each_value(dims, [&](const StoredPlace& inside, std::int64_t outside) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes + inside.byte, static_cast<std::size_t>(core::stored_bytes(inside.stored)));
    values[outside] = core::stored_value(inside.stored, bits, 1.0f);
  });
}

}  // namespace exphil::cuda
