// Included first by every SIMD unit of host/: the targets that are compiled, and the panel width.
//
// Three targets: the compiler's baseline, AVX2 and AVX-512 (Highway's "AVX3"). More would add compile time
// for machines that these already support. Sizeless vectors (SVE, RVV) cannot be members of a struct, which
// kernels/common/formulas.cuh needs for complex numbers; ARM uses NEON. Targets whose names Debian 12's
// Highway lacks are disabled by number: everything above AVX-512 (HWY_AVX3 - 1), and SSE2 (bit 14), whose
// conversions to half precision do not round to nearest even.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  ((HWY_AVX3 - 1) | HWY_SSSE3 | HWY_SSE4 | (1LL << 14) | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

#include <cstdint>

namespace exphil::host {

// Channels (or matrix rows) that are processed together, whatever the target's vector width: one AVX-512
// register, two of AVX2. Packed weights and resident states therefore do not depend on the target.
inline constexpr std::int64_t kPanel = 16;

inline constexpr std::int64_t panels(std::int64_t count) {
  return (count + kPanel - 1) / kPanel;
}

inline constexpr std::int64_t padded(std::int64_t count) {
  return panels(count) * kPanel;
}

// The name of the target in use ("AVX3"), after any restriction made by a test.
const char* simd_target();

}  // namespace exphil::host
