#include "host/policy/weights.hpp"

#include <algorithm>
#include <limits>

namespace exphil::host {

std::vector<const core::Block*> blocks_of(const core::Network& network) {
  std::vector<const core::Block*> blocks{&network.input};
  for (const core::Block& layer : network.layers) blocks.push_back(&layer);
  blocks.push_back(&network.output);
  return blocks;
}

ScanRule scan_rule_of(const core::SelectiveScan& scan) {
  ScanRule rule;
  rule.dim = scan.x.size;
  rule.state = scan.b.size;
  rule.dt_softplus = scan.activates;
  rule.dt_min = scan.activates ? scan.lowest : -std::numeric_limits<float>::infinity();
  rule.dt_max = scan.activates ? scan.highest : std::numeric_limits<float>::infinity();
  return rule;
}

namespace {

// Packs phase after phase into an arena. Without an arena it only counts the floats that one needs.
class Packer {
 public:
  Packer(const core::PolicyWeights& weights, float* arena) : weights_(weights), arena_(arena) {}

  std::vector<std::vector<PackedPhase>> pack() {
    std::vector<std::vector<PackedPhase>> blocks;
    for (const core::Block* block : blocks_of(weights_.network())) {
      blocks.emplace_back();
      for (const core::Phase& phase : *block) {
        blocks.back().push_back(std::visit([this](const auto& of_kind) { return packed(of_kind); }, phase));
      }
    }
    return blocks;
  }
  std::int64_t floats() const { return used_; }

 private:
  PackedPhase packed(const core::Copy&) { return {}; }
  PackedPhase packed(const core::Mean&) { return {}; }

  PackedPhase packed(const core::Norm& phase) {
    PackedPhase to;
    to.norm.weight = vector(phase.weight, phase.in.size);
    if (phase.kind == core::NormKind::layer) to.norm.bias = vector(phase.bias, phase.in.size);
    return to;
  }

  PackedPhase packed(const core::Product& phase) {
    PackedPhase to;
    const core::Precision precision = weights_.config.precision;
    const std::int64_t outs = phase.out.size, depth = phase.in.size;
    if (float* const place = take(packed_floats(outs, depth, precision))) {
      const float* const bias = values(phase.bias);
      to.matrix =
          pack_matrix(values(phase.weight) + phase.first_row * depth,
                      bias == nullptr ? nullptr : bias + phase.first_row, outs, depth, place, precision);
    }
    return to;
  }

  PackedPhase packed(const core::Convolution& phase) {
    PackedPhase to;
    const std::int64_t channels = phase.in.size, step = padded(channels);
    if (float* const taps = take(phase.taps * step)) {
      const float* from = values(phase.weight);
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        for (std::int64_t tap = 0; tap < phase.taps; ++tap) taps[tap * step + channel] = *from++;
      }
      to.taps = taps;
    }
    to.bias = vector(phase.bias, channels);
    return to;
  }

  PackedPhase packed(const core::Softplus& phase) {
    PackedPhase to;
    to.bias = vector(phase.bias, phase.in.size);
    return to;
  }

  PackedPhase packed(const core::SelectiveScan& phase) {
    PackedPhase to;
    to.rule = scan_rule_of(phase);
    const std::int64_t channels = phase.x.size;
    float* const a = take(panels(channels) * to.rule.a_block());
    float* const bounds = take(padded(panels(channels)));
    if (a != nullptr) {
      pack_a(to.rule, values(phase.a), a);
      bounds_of(to.rule, a, bounds);
    }
    to.a = a, to.a_bounds = bounds;
    if (phase.d != core::kNone) to.d = vector(phase.d, channels);
    if (phase.activates) to.bias = vector(phase.dt_bias, channels);
    return to;
  }

  // Null where there is no arena.
  float* take(std::int64_t floats) {
    float* const taken = arena_ == nullptr ? nullptr : arena_ + used_;
    used_ += floats;
    return taken;
  }

  const float* values(core::WeightId id) const {
    return id == core::kNone ? nullptr : core::values_of(weights_.values, id).data();
  }

  // A vector that the policy does not have is zero (the arena's initial value).
  const float* vector(core::WeightId id, std::int64_t count) {
    float* const to = take(padded(count));
    if (to != nullptr && id != core::kNone) std::copy_n(values(id), count, to);
    return to;
  }

  const core::PolicyWeights& weights_;
  float* const arena_;
  std::int64_t used_ = 0;
};

std::int64_t arena_floats(const core::PolicyWeights& weights) {
  Packer counter(weights, nullptr);
  counter.pack();
  return counter.floats();
}

}  // namespace

PackedWeights::PackedWeights(const core::PolicyWeights& weights)
    : config_(weights.config),
      fingerprint_(weights.fingerprint),
      arena_(arena_floats(weights)),
      blocks_(Packer(weights, arena_.data()).pack()) {}

}  // namespace exphil::host
