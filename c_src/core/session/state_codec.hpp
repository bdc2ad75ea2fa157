// An agent's state as bytes that outlive the VM: little-endian, versioned, tied to one policy by its
// fingerprint, with a checksum at the end. Layout:
//   "EXPHILST", u32 version, u32 zero, u64 fingerprint, 4 i64 PolicyConfig::state_signature,
//   f32 {state_floats}: the parts of the network's states one after another,
//   u64 hash64 (core/hash.hpp) of all bytes before it.
// Version 2 is a carried state that has not played. Version 4 is every other state: after the same head,
//   u64 frame, u32 buttons held (bit i: button i), u32 flag (1: window frames follow, 0: the state),
//   u64 d_input and u64 frames, f32 frames {frames, d_input} oldest first, or the state as above,
//   u64 hash64.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/policy/config.hpp"
#include "core/session/play.hpp"

namespace exphil::core {

struct StateValues {
  std::vector<float> carried;                // {state_floats}
  std::optional<std::vector<float>> frames;  // of a window, instead of a carried state
  PlayState play;
};

std::vector<std::uint8_t> encode_state(const PolicyConfig& config, std::uint64_t fingerprint,
                                       const StateValues& values);

// Throws invalid_state where the bytes are damaged or of an unknown version, mismatch where they are valid
// but of another policy.
StateValues decode_state(const PolicyConfig& config, std::uint64_t fingerprint, const std::uint8_t* bytes,
                         std::size_t size);

}  // namespace exphil::core
