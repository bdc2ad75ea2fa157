// The recurrences over heads of one block while it is lowered, and what belongs to them: rotated and delayed
// keys, ranks, and gates of their outputs. The part of cuda/policy/lower_block.cpp for them.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/policy/lower_products.hpp"

namespace exphil::cuda {

inline constexpr std::int64_t kMostStates = 1024;  // of a channel, and keys of a head

class HeadLowering : protected ProductLowering {
 public:
  using ProductLowering::ProductLowering;

 protected:
  // As those of BlockLowering: one for each kind of phase.
  void add(const core::HeadRecurrence& p);
  void add(const core::Trapezoid&) {}  // the heads have it
  void add(const core::RankScale& p);
  void add(const core::Angle& p);
  void add(const core::Rotation& p);
  void add(const core::Delay& p);

  const core::RankScale& take(const GateRanks& ranks);
  int gate_vector(const core::Gate& gate);
  void require_zeros(core::StateId state) const;

  std::vector<const void*> taken_;  // copies by cells and gates by heads, which write their outputs

 private:
  void trapezoid(const core::HeadRecurrence& p, LoweredPhase* phase, policy::Heads* made);
  const core::Gate* reader_of_gates(const core::Span& span) const;
};

}  // namespace exphil::cuda
