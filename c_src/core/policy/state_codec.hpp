// An agent's state as bytes that outlive the VM: little-endian, versioned, tied to one policy by its
// fingerprint, closed by a checksum. Layout:
//   "EXPHILST", u32 version, u32 zero, u64 fingerprint, i64 n_layer, d_inner, d_state, d_conv,
//   f32 ssm {n_layer, d_inner, d_state}, f32 conv {n_layer, d_inner, d_conv - 1}, u64 hash64 (core/hash.hpp)
//   of all before.
// Version 2 is a carried state that has not played. Version 4 is any other: after the same head
//   u64 frame, u32 buttons held (bit i: button i), u32 1 where frames of a window follow, 0 where ssm and
//   conv do, u64 d_input and u64 frames, f32 frames {frames, d_input} oldest first, or ssm and conv as above;
//   u64 hash64.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/policy/config.hpp"
#include "core/policy/play.hpp"

namespace exphil::core {

struct StateValues {
  std::vector<float> ssm, conv;              // of a carried state
  std::optional<std::vector<float>> frames;  // else: those of a window
  PlayState play;
};

std::vector<std::uint8_t> encode_state(const PolicyConfig& config, std::uint64_t fingerprint,
                                       const StateValues& values);

// Throws invalid_state where the bytes are damaged or of another version, mismatch where they are sound but
// belong to another policy.
StateValues decode_state(const PolicyConfig& config, std::uint64_t fingerprint, const std::uint8_t* bytes,
                         std::size_t size);

}  // namespace exphil::core
