// Catch2, version 2 (one header) or 3.
#pragma once

#include <string>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;  // where version 2 declares it
#else
#include <catch2/catch.hpp>
#endif

namespace exphil::test {

// Matches a text that has this one in it.
inline auto has_text(const std::string& text) {
#if __has_include(<catch2/catch_all.hpp>)
  return Catch::Matchers::ContainsSubstring(text);
#else
  return Catch::Contains(text);
#endif
}

}  // namespace exphil::test
