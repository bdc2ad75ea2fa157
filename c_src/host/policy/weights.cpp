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

PhaseWeights phase_weights(const core::Phase& phase) {
  const auto row = [](core::WeightId id, std::int64_t size) { return PhaseWeight{id, {0, size, 1}}; };
  PhaseWeights all;
  if (const auto* const norm = std::get_if<core::Norm>(&phase)) {
    all[kWeight] = row(norm->weight, norm->in.size / norm->repeats);
    if (norm->kind == core::NormKind::layer) all[kBias] = row(norm->bias, norm->in.size);
  } else if (const auto* const convolution = std::get_if<core::Convolution>(&phase)) {
    all[kWeight] = {convolution->weight, {0, convolution->in.size, convolution->taps}};
    all[kBias] = row(convolution->bias, convolution->in.size);
  } else if (const auto* const softplus = std::get_if<core::Softplus>(&phase)) {
    all[kBias] = row(softplus->bias, softplus->in.size);
  } else if (const auto* const scan = std::get_if<core::SelectiveScan>(&phase)) {
    all[kWeight] = {scan->a, {0, scan->x.size, scan->b.size, true}};
    if (scan->activates) all[kBias] = row(scan->dt_bias, scan->x.size);
    if (scan->d != core::kNone) all[kSkip] = row(scan->d, scan->x.size);
  } else if (const auto* const heads = std::get_if<core::HeadRecurrence>(&phase)) {
    if (heads->a != core::kNone) all[kWeight] = row(heads->a, heads->heads());
    if (heads->d != core::kNone) all[kSkip] = row(heads->d, heads->skips);
    if (heads->scale != core::kNone) all[kBias] = row(heads->scale, heads->ranks * heads->value.size);
  } else if (const auto* const rotation = std::get_if<core::Rotation>(&phase)) {
    all[kWeight] = row(rotation->bias, rotation->out.size);
  } else if (const auto* const ranks = std::get_if<core::RankScale>(&phase)) {
    all[kWeight] = row(ranks->weight, ranks->ranks * ranks->heads * ranks->channels());
  }
  return all;
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
      for (const core::Phase& phase : *block) blocks.back().push_back(packed(phase));
    }
    return blocks;
  }
  std::int64_t floats() const { return used_; }

 private:
  PackedPhase packed(const core::Phase& phase) {
    PackedPhase to;
    if (const auto* const product = std::get_if<core::Product>(&phase)) to.matrix = matrix(*product);
    float* const first = take(0);
    const PhaseWeights all = phase_weights(phase);
    for (std::size_t i = 0; i < all.size(); ++i) to.weights[i] = packed(all[i]);
    if (const auto* const scan = std::get_if<core::SelectiveScan>(&phase)) {
      to.rule = scan_rule_of(*scan);
      float* const bounds = take(padded(panels(scan->x.size)));
      if (bounds == nullptr) return to;
      pack_a(to.rule, values(scan->a), first);
      bounds_of(to.rule, first, bounds);
      to.a_bounds = bounds;
    }
    return to;
  }

  PackedMatrix matrix(const core::Product& product) {
    const core::Precision precision = weights_.config.precision;
    const std::int64_t outs = product.out.size, depth = product.in.size;
    float* const place = take(packed_floats(outs, depth, precision));
    if (place == nullptr) return {};
    const float* const bias = values(product.bias);
    return pack_matrix(values(product.weight) + product.first_row * depth,
                       bias == nullptr ? nullptr : bias + product.first_row, outs, depth, place, precision);
  }

  // The arena is zero at first.
  const float* packed(const PhaseWeight& weight) {
    if (weight.place.rows == 0) return nullptr;
    float* const to = take(weight.place.floats());
    if (to != nullptr && weight.id != core::kNone) weight.place.write(values(weight.id), to);
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
