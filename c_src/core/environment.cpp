#include "core/environment.hpp"

#include <charconv>
#include <cstdlib>

#include "core/error.hpp"

namespace exphil::core {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<std::int64_t> environment_number(const char* name, std::int64_t least, std::int64_t most) {
  const std::string text = environment(name);
  if (text.empty()) return std::nullopt;
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < least || number > most) {
    fail(ErrorKind::invalid_argument, name, name, " must be a number from ", least, " to ", most, ", got \"",
         text, "\"");
  }
  return number;
}

std::optional<std::int64_t> pinned_limit_from_environment() {
  return environment_number("EXPHIL_NATIVE_PINNED_LIMIT", 0, kMostPinned);
}

}  // namespace exphil::core
