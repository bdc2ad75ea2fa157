// Text for messages: always valid UTF-8, of bounded length, and without control characters where it was not
// written by this library. Used by core::Error and by everything that names a file, a tensor or a value in a
// message. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace exphil::core {

// `text` between quotation marks. Control characters, quotation marks, backslashes and bytes that are not
// UTF-8 are escaped; the result is cut with "..." after `most` bytes.
std::string quote(std::string_view text, std::size_t most = 200);

// The same for a path, which may need more room.
inline std::string quote_path(std::string_view path) {
  return quote(path, 1024);
}

// `text` with every byte that is not UTF-8 as \xNN, cut with "..." so that it has at most `most` bytes. Other
// characters, newlines among them, stay.
std::string valid_text(std::string_view text, std::size_t most);

}  // namespace exphil::core
