// Text for messages: always valid UTF-8, of bounded length, and without control characters in text from
// outside this library. Used by core::Error and wherever a message names a file, a tensor or a value. Pure
// functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace exphil::core {

// `text` between quotation marks. Control characters, quotation marks, backslashes and bytes that are not
// UTF-8 are escaped; the result is cut with "..." after `most` bytes.
std::string quote(std::string_view text, std::size_t most = 200);

// quote() for a path, with a larger limit.
inline std::string quote_path(std::string_view path) {
  return quote(path, 1024);
}

// `text` with every byte that is not UTF-8 as \xNN, cut with "..." to at most `most` bytes. Keeps other
// characters, including newlines.
std::string valid_text(std::string_view text, std::size_t most);

}  // namespace exphil::core
