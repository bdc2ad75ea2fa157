// SHA-256 (FIPS 180-4), for the keys and checksums of the compiled-kernel cache. No state; safe from any
// thread.
#pragma once

#include <string>

namespace exphil::cuda {

// The digest of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256_hex(const std::string& bytes);

}  // namespace exphil::cuda
