// The names of ExPhil's six heads, in the order of its logits. Used by core/trunk, core/session and nif;
// constants, any thread.
#pragma once

#include <string>

namespace exphil::core {

// Each output of the first is an event of its own; the others are one choice each.
inline constexpr const char* kExphilHeads[] = {"buttons", "main_x", "main_y", "c_x", "c_y", "shoulder"};

inline bool has_separate_events(const std::string& exphil_head) {
  return exphil_head == kExphilHeads[0];
}

}  // namespace exphil::core
