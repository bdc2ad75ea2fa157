// Catches core::Error in a test: caught = error_of([&] { call(); }); CHECK(caught.kind == ErrorKind::...).
#pragma once

#include <string>

#include "core/error.hpp"

namespace exphil::test {

struct CaughtError {
  bool thrown = false;
  core::ErrorKind kind = core::ErrorKind::internal;
  std::string argument, message;

  bool says(const std::string& part) const { return message.find(part) != std::string::npos; }
};

template <class Call>
CaughtError error_of(const Call& call) {
  try {
    call();
  } catch (const core::Error& error) {
    return {true, error.kind(), error.argument(), error.what()};
  }
  return {};
}

}  // namespace exphil::test
