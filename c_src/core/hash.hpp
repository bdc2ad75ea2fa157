// A 64-bit hash for checksums and fingerprints: fast, stable across machines and versions of this library,
// not cryptographic. Every step is a bijection of the running value, so a change within one 8-byte word
// always shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace exphil::core {

class Hash64 {
 public:
  void add_word(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x9e3779b97f4a7c15u;
    value_ ^= value_ >> 32;
  }

  // Little-endian words; the length is part of the value, so that "ab" + "c" differs from "a" + "bc".
  void add_bytes(const void* data, std::size_t size) {
    const unsigned char* bytes = static_cast<const unsigned char*>(data);
    add_word(size);
    for (; size >= 8; size -= 8, bytes += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes, 8);
      add_word(word);
    }
    if (size > 0) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes, size);
      add_word(word);
    }
  }

  void add_text(const std::string& text) { add_bytes(text.data(), text.size()); }

  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0x6a09e667f3bcc908u;
};

}  // namespace exphil::core
