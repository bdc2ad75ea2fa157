// Names of a head's outputs in a safetensors file's metadata: "exphil_native.heads" is
// "main_x:17,main_y:17,buttons:4:binary", the groups in the order of the outputs, each with how many it has
// and whether they are separate events. They change no answer. Used by core/trunk/load.cpp; any thread.
#pragma once

#include <map>
#include <string>

#include "core/policy/config.hpp"

namespace exphil::core {

inline constexpr const char* kHeadsKey = "exphil_native.heads";

// Sets the config's groups where the metadata has them and the policy has none. Where they are malformed or
// not as many as the outputs: throws invalid_checkpoint of a file; where `from_option`, because a caller gave
// them as :heads, invalid_argument.
void name_outputs(const std::map<std::string, std::string>& metadata, bool from_option, PolicyConfig* config);

}  // namespace exphil::core
