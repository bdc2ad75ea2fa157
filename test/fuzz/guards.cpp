#include "guards.hpp"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "core/error.hpp"

namespace exphil::fuzz {

namespace {

// With the sanitizers a sound file of 64 KB takes about 2 ms here; quadratic time in 64 KB takes seconds.
constexpr double kSeconds = 0.05, kSecondsPerByte = 5e-6;

double seconds_of_thread() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

[[noreturn]] void report(const std::string& what) {
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

bool expected(core::ErrorKind kind) {
  using core::ErrorKind;
  return kind == ErrorKind::invalid_argument || kind == ErrorKind::invalid_checkpoint ||
         kind == ErrorKind::limit_exceeded || kind == ErrorKind::unsupported || kind == ErrorKind::mismatch ||
         kind == ErrorKind::invalid_state;
}

void run_once(const std::function<void()>& check) {
  try {
    check();
  } catch (const core::Error& error) {
    const std::string message = error.what();
    if (!expected(error.kind())) report(core::error_kind_name(error.kind()) + std::string(": ") + message);
    if (message.empty() || message.size() > core::Error::kMaxMessage ||
        core::valid_text(message, message.size()) != message) {
      report("a message that is empty, too long or not UTF-8");
    }
    // A log shows a message as one line.
    if (std::any_of(message.begin(), message.end(),
                    [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; })) {
      report("a message with a control character: " + core::quote(message));
    }
  }
}

}  // namespace

const std::string& as_file(const std::uint8_t* data, std::size_t size) {
  static const int descriptor = ::memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (descriptor < 0 || ::ftruncate(descriptor, 0) != 0 ||
      ::pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size)) {
    report("the input cannot be written");
  }
  return path;
}

void run_guarded(std::size_t size, const std::function<void()>& check) {
  const double limit = kSeconds + kSecondsPerByte * static_cast<double>(size);
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double start = seconds_of_thread();
    run_once(check);
    if (seconds_of_thread() - start <= limit) return;
  }
  report("the input takes more time than its size allows");
}

}  // namespace exphil::fuzz
