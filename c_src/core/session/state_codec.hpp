// An agent's state as bytes that outlive the VM: little-endian, versioned, tied to one policy by its
// fingerprint, with a checksum at the end. Layout:
//   "EXPHILST", u32 version, u32 window, u64 fingerprint, 4 i64 PolicyConfig::state_signature,
//   f32 {state_floats}: the parts of the network's states one after another,
//   u64 hash64 (core/hash.hpp) of all bytes before it.
// Version 2 is a carried state that has not played. Version 4 is one that has; version 5 is that of a session
// with a window, whose length in frames is in the head (elsewhere 0). After the same head both have
//   u64 frame, u32 buttons held (bit i: button i), u32 flag (1: window frames follow, 0: the state),
//   u64 d_input and u64 frames, f32 frames {frames, d_input} oldest first, or the state as above,
//   u64 hash64.
// Earlier versions of this library wrote the state of a window as version 4, without its length.
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
  std::int64_t window = 0;                   // how many frames it has when it is full; 0: not known
  PlayState play;
};

std::vector<std::uint8_t> encode_state(const PolicyConfig& config, std::uint64_t fingerprint,
                                       const StateValues& values);

// Throws invalid_state where the bytes are damaged or of an unknown version, mismatch where they are valid
// but of another policy.
StateValues decode_state(const PolicyConfig& config, std::uint64_t fingerprint, const std::uint8_t* bytes,
                         std::size_t size);

}  // namespace exphil::core
