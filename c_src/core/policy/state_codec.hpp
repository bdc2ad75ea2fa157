// An agent's state as bytes that outlive the VM: little-endian, versioned, tied to one policy by its
// fingerprint, closed by a checksum. Layout:
//   "EXPHILST", u32 version, u32 zero, u64 fingerprint, i64 n_layer, d_inner, d_state, d_conv,
//   f32 ssm {n_layer, d_inner, d_state}, f32 conv {n_layer, d_inner, d_conv - 1}, u64 hash64 (core/hash.hpp)
//   of all before.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/policy/config.hpp"

namespace exphil::core {

struct StateValues {
  std::vector<float> ssm, conv;
};

std::vector<std::uint8_t> encode_state(const PolicyConfig& config, std::uint64_t fingerprint,
                                       const StateValues& values);

// Throws invalid_state where the bytes are damaged or of another version, mismatch where they are sound but
// belong to another policy.
StateValues decode_state(const PolicyConfig& config, std::uint64_t fingerprint, const std::uint8_t* bytes,
                         std::size_t size);

}  // namespace exphil::core
