// Hashes of bytes by xxHash (XXH3), for checksums, fingerprints and keys. Fast, the same on every machine,
// not cryptographic. Only hash.cpp includes xxHash. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace exphil::core {

std::uint64_t hash64(const void* data, std::size_t size);

// 16 lower-case hexadecimal digits.
std::string hex(std::uint64_t value);

// Hashes a list of texts: each part is preceded by its length, so that "ab", "c" differs from "a", "bc".
class HashedParts {
 public:
  void add(const std::string& part);
  std::uint64_t hash64() const;
  // 128 bits as 32 lower-case hexadecimal digits.
  std::string hash128_hex() const;

 private:
  std::string text_;
};

}  // namespace exphil::core
