// std::visit of a phase with a lambda for each kind, and whether spans overlap. Used in core/policy only;
// pure functions.
#pragma once

#include <variant>

#include "core/policy/network.hpp"

namespace exphil::core {

// A function object of several lambdas, for std::visit.
template <class... Cases>
struct PhaseCases : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
PhaseCases(Cases...) -> PhaseCases<Cases...>;

template <class... Cases>
auto match(const Phase& phase, Cases... cases) {
  return std::visit(PhaseCases{cases...}, phase);
}

inline bool overlap(const Span& p, const Span& q) {
  return p.vector == q.vector && p.first < q.first + q.size && q.first < p.first + p.size;
}

}  // namespace exphil::core
