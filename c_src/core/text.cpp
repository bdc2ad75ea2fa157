#include "core/text.hpp"

namespace exphil::core {

namespace {

constexpr std::string_view kCut = "...";

unsigned char byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

// The length in bytes of the UTF-8 character at `at`; 0 where the bytes are invalid. The ranges are those of
// the Unicode standard, table 3-7: no overlong forms, no surrogates, nothing beyond U+10FFFF.
std::size_t character_bytes(std::string_view text, std::size_t at) {
  const unsigned char first = byte_at(text, at), second = byte_at(text, at + 1);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (second < least || second > most) return 0;
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 2; i < bytes; ++i) {
    if ((byte_at(text, at + i) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

std::string hexadecimal(unsigned char byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  return {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
}

// The escape sequence of a character that must not appear in a message; "" for any other.
std::string escape(std::string_view text, std::size_t at) {
  const unsigned char first = byte_at(text, at);
  if (first == '\n') return "\\n";
  if (first == '"' || first == '\\') return {'\\', static_cast<char>(first)};
  if (first < 0x20 || first == 0x7f) return hexadecimal(first);
  // U+0080 to U+009F are control characters too.
  if (first == 0xc2 && byte_at(text, at + 1) < 0xa0)
    return hexadecimal(first) + hexadecimal(byte_at(text, at + 1));
  return "";
}

// Copies characters, escaped if `escaped`, as long as the result has at most `most` bytes.
std::string copy(std::string_view text, std::size_t most, bool escaped) {
  std::string out;
  std::size_t at = 0, fits = 0;  // out[0, fits) leaves room for kCut
  while (at < text.size()) {
    const std::size_t bytes = character_bytes(text, at);
    std::string piece = bytes == 0 ? hexadecimal(byte_at(text, at)) : escaped ? escape(text, at) : "";
    if (piece.empty()) piece = text.substr(at, bytes);
    if (out.size() + piece.size() > most) {
      out.resize(fits);
      return out.append(kCut.substr(0, most));
    }
    out += piece;
    if (out.size() + kCut.size() <= most) fits = out.size();
    at += bytes == 0 ? 1 : bytes;
  }
  return out;
}

}  // namespace

std::string quote(std::string_view text, std::size_t most) {
  return "\"" + copy(text, most, true) + "\"";
}

std::string valid_text(std::string_view text, std::size_t most) {
  return copy(text, most, false);
}

}  // namespace exphil::core
