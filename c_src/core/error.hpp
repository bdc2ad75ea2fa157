// The exception type of c_src. All code below nif/ throws it; only nif/ translates it, into {:error, {kind,
// argument, message}}. Immutable, so safe to pass between threads.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/text.hpp"

namespace exphil::core {

// Each kind is an atom of the same name on the Elixir side (ExPhil.Native.Error).
enum class ErrorKind {
  invalid_argument,     // wrong rank, size, type, option: the caller's mistake
  unsupported,          // a valid request that this build, backend or dtype does not support
  limit_exceeded,       // a size beyond a named limit
  invalid_checkpoint,   // a checkpoint file that is malformed or does not fit the policy
  file_error,           // the operating system refused the file
  mismatch,             // a state, snapshot or session of another model
  invalid_state,        // an exported state that is damaged or of another version
  backend_unavailable,  // no such backend or device here; the message says why
  compile_failed,       // NVRTC refused a kernel; the log is in the message
  out_of_memory,        // host or device; the message says how much was requested and free
  device_lost,          // the CUDA context is unusable; every later call on it says so
  cuda_error,           // any other failed CUDA call, with its name and code
  internal,             // a defect in this library
};

const char* error_kind_name(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  static constexpr std::size_t kMaxMessage = 4096, kMaxArgument = 256;  // bytes

  // argument: the public name of the argument at fault ("x", ":dt_range"), or "" where there is none. Both
  // texts are made valid UTF-8 and cut to their limits. Pass text from a file, a name or a value through
  // quote(), which escapes and shortens it.
  Error(ErrorKind kind, const std::string& argument, const std::string& message)
      : std::runtime_error(valid_text(message, kMaxMessage)),
        kind_(kind),
        argument_(valid_text(argument, kMaxArgument)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& argument() const { return argument_; }

 private:
  ErrorKind kind_;
  std::string argument_;
};

// Joins anything streamable into one string: message("expected ", n, " bytes").
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const std::string& argument, const Parts&... parts) {
  throw Error(kind, argument, message(parts...));
}

}  // namespace exphil::core
