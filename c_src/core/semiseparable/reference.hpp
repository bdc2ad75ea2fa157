// The oracle of the adaptive-rank semiseparable layer: the formulas of weights.hpp in double,
// one scalar loop each. Readable, never optimised.
#pragma once

#include <vector>

#include "core/semiseparable/layer.hpp"

namespace exphil::core {

struct SemiseparableReference {
  std::vector<double> y;      // {batch, seq, hidden}
  std::vector<double> gates;  // {batch, seq, rank}
};

SemiseparableReference semiseparable_reference(const SemiseparableWeights& weights,
                                               const SemiseparableInput& input);

}  // namespace exphil::core
