// Runs a test body once for every SIMD target that is compiled in and that this machine has.
#pragma once

#include "host/simd/simd.hpp"

// After simd.hpp, which selects the compiled targets.
#include <hwy/highway.h>

#include <vector>

namespace exphil::test {

inline std::vector<std::int64_t> compiled_targets() {
  std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  // The baseline always runs, but the library does not list it where better targets exist.
  if (targets.empty() || targets.back() != HWY_STATIC_TARGET) targets.push_back(HWY_STATIC_TARGET);
  return targets;
}

// Restricts dispatch to one target during its lifetime.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~OnlyTarget() { hwy::SetSupportedTargetsForTest(0); }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

template <class Body>
void for_each_target(const Body& body) {
  for (const std::int64_t target : compiled_targets()) {
    const OnlyTarget only(target);
    body();
  }
}

}  // namespace exphil::test
