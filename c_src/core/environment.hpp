// Environment variables as C++ reads them. Elixir reads two others: EXPHIL_NATIVE_NIF, the path of this
// library, and EXPHIL_NATIVE_BACKEND, read at each call. Any thread, as long as no thread changes the
// environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace exphil::core {

// "" where the variable is not set.
std::string environment(const char* name);

// The variable as a number; nothing where it is unset or empty. Throws invalid_argument with the variable's
// name unless it is a decimal number from `least` to `most`.
std::optional<std::int64_t> environment_number(const char* name, std::int64_t least, std::int64_t most);

// Bytes of pinned memory: more than any machine has, and few enough that sums of sizes cannot overflow.
inline constexpr std::int64_t kMostPinned = std::int64_t{1} << 50;

// EXPHIL_NATIVE_PINNED_LIMIT. Only the CUDA backend uses it; every build checks it, as it does the config, so
// that a wrong value is found before it comes to a machine with a GPU.
std::optional<std::int64_t> pinned_limit_from_environment();

}  // namespace exphil::core
