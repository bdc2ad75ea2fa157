// Size limits of the operators on every backend. Each error names its limit.
#pragma once

#include <cstdint>

namespace exphil::core {

inline constexpr std::int64_t kMaxState = 256;           // per channel, any method
inline constexpr std::int64_t kMaxFullMatrixState = 32;  // {dim, state, state} with bilinear
inline constexpr std::int64_t kMaxDim = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxRecurrentHidden = 16384;  // of gru_scan and lstm_scan: r is 4 GB

}  // namespace exphil::core
