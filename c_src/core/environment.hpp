// Environment variables as C++ reads them. Elixir reads two others: EXPHIL_NATIVE_NIF, which names this
// library, and EXPHIL_NATIVE_BACKEND, which is looked up at each call. Any thread, as long as nobody changes
// the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace exphil::core {

// "" where the variable is not set.
std::string environment(const char* name);

// The variable's number; nothing where it is not set or empty. Throws invalid_argument with the variable's
// name for anything but a decimal number from `least` to `most`.
std::optional<std::int64_t> environment_number(const char* name, std::int64_t least, std::int64_t most);

}  // namespace exphil::core
