#include "host/policy/gradient_sums.hpp"

#include <algorithm>

#include "core/work/parallel.hpp"
#include "host/simd/rows.hpp"

namespace exphil::host {

GradientSums::GradientSums(const core::PolicyWeights& weights) {
  for (const core::Block* block : blocks_of(weights.network())) {
    BlockSums& sums = blocks.emplace_back();
    std::int64_t floats = 0;
    for (const core::Phase& phase : *block) {
      PhaseSums& of_phase = sums.phases.emplace_back();
      of_phase.weights = phase_weights(phase);
      of_phase.at = floats;
      for (PhaseWeight& weight : of_phase.weights) {
        weight.place.at = floats;
        floats += weight.place.floats();
      }
      of_phase.floats = floats - of_phase.at;
      if (const auto* const p = std::get_if<core::Product>(&phase)) {
        const float* const values = core::values_of(weights.values, p->weight).data();
        of_phase.product = {values + p->first_row * p->in.size, p->out.size, p->in.size,
                            p->bias != core::kNone};
      }
    }
    sums.totals = AlignedBuffer(floats);
  }
}

void GradientSums::add_rows_of(BlockSums& block, const PhaseSums& phase, const float* rows,
                               std::int64_t count) {
  constexpr std::int64_t kPanels = 64;  // of a piece
  core::parallel_for(panels(phase.floats), kPanels, [&](std::int64_t begin, std::int64_t end) {
    add_rows(rows, count, phase.floats, block.totals.data() + phase.at, begin, end);
  });
}

void GradientSums::write(const core::PolicyWeights& weights, core::PolicyValues<float>* to) const {
  const auto of = [to](core::WeightId id) { return (*to)[static_cast<std::size_t>(id)].data(); };
  const std::vector<const core::Block*> all = blocks_of(weights.network());
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t i = 0; i < blocks[b].phases.size(); ++i) {
      const PhaseSums& sums = blocks[b].phases[i];
      for (const PhaseWeight& weight : sums.weights) {
        if (weight.id != core::kNone) weight.place.read(blocks[b].totals.data(), of(weight.id));
      }
      if (const auto* const p = std::get_if<core::Product>(&(*all[b])[i])) {
        float* const bias = p->bias == core::kNone ? nullptr : of(p->bias) + p->first_row;
        sums.product.write(of(p->weight) + p->first_row * p->in.size, bias);
      }
    }
  }
  core::derive_back(weights.network(), weights.values, to);
}

}  // namespace exphil::host
