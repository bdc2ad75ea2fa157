// Numbers at which sizes, counts and offsets go wrong. Used by the mutators.
#pragma once

#include <cstdint>

namespace exphil::fuzz {

inline constexpr std::uint64_t kNumbers[] = {0,
                                             1,
                                             2,
                                             3,
                                             4,
                                             7,
                                             8,
                                             9,
                                             16,
                                             255,
                                             256,
                                             257,
                                             1024,
                                             65536,
                                             (1u << 24) + 1,
                                             INT32_MAX,
                                             std::uint64_t{1} << 31,
                                             std::uint64_t{1} << 32,
                                             std::uint64_t{1} << 61,
                                             std::uint64_t{1} << 62,
                                             INT64_MAX,
                                             UINT64_MAX};

}  // namespace exphil::fuzz
