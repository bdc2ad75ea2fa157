// The rules of recurrences over heads, and their ranks, while a block is lowered: which vectors and weights a
// recurrence has. The part of cuda/policy/lower_block.cpp that knows them.
#pragma once

#include <vector>

#include "cuda/policy/lower_products.hpp"

namespace exphil::cuda {

class HeadLowering : protected ProductLowering {
 public:
  using ProductLowering::ProductLowering;

 protected:
  // Each channel has a rate, and a head's decay is found where the heads use it.
  void delta(const core::HeadRecurrence& p, policy::Heads* made);
  // The coefficients are found where the heads use them. A layer has such heads once.
  void trapezoid(const core::HeadRecurrence& p, LoweredPhase* phase, policy::Heads* made);
  // Those of a gate belong to its phase, or to that of the heads.
  const core::RankScale& take(const GateRanks& ranks);
  const core::Gate* reader_of_gates(const core::Span& span) const;

  std::vector<const void*> taken_;  // copies by cells and gates by heads, which write their outputs
};

}  // namespace exphil::cuda
