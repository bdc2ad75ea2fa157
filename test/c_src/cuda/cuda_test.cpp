// See cuda_test.hpp.
#include "cuda/cuda_test.hpp"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "cuda/backend.hpp"
#include "cuda/device/driver.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

// Quoted as one word for the shell.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

bool have_nvrtc() {
  static const std::string reason = [] {
    try {
      cuda::nvrtc();
      return std::string();
    } catch (const core::Error& error) {
      std::fprintf(stderr, "skipped: tests that need NVRTC: %s\n", error.what());
      return std::string(error.what());
    }
  }();
  return reason.empty();
}

bool have_device() {
  static const std::string reason = [] {
    std::string why = cuda::cuda_unavailable_reason();
    if (!why.empty()) std::fprintf(stderr, "skipped: tests that need a GPU ([gpu]): %s\n", why.c_str());
    return why;
  }();
  return reason.empty();
}

Environment::Environment(const char* name, const char* value) : name_(name) {
  const char* before = std::getenv(name);
  was_set_ = before != nullptr;
  if (was_set_) before_ = before;
  value != nullptr ? setenv(name, value, 1) : unsetenv(name);
}

Environment::~Environment() {
  was_set_ ? setenv(name_.c_str(), before_.c_str(), 1) : unsetenv(name_.c_str());
}

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "exphil_test_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed for " + name);
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void Folder::write(const std::string& name, const std::string& text) const {
  std::ofstream out(file(name), std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw std::runtime_error("cannot write " + file(name));
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

RunResult run_tests(const std::string& tag, const std::map<std::string, std::string>& variables) {
  std::string command = "env";
  for (const auto& [name, value] : variables) command += " " + quoted(name + "=" + value);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  // A tag without tests is a failure; the option's name differs between versions.
#if defined(CATCH_VERSION_MAJOR) && CATCH_VERSION_MAJOR >= 3
  command += " " + quoted(program) + " --warn UnmatchedTestSpec " + quoted(tag) + " 2>&1";
#else
  command += " " + quoted(program) + " -w NoTests " + quoted(tag) + " 2>&1";
#endif
  RunResult result;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  char buffer[4096];
  for (std::size_t size; (size = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    result.output.append(buffer, size);
  }
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
  return result;
}

RunResult run_with_slow_exit(const std::string& tag) {
#if defined(__SANITIZE_ADDRESS__)
  return run_tests(tag, {});  // its runtime has to be the first library
#else
  return run_tests(tag, {{"LD_PRELOAD", EXPHIL_SLOW_EXIT}});
#endif
}

RunResult run_over_fake(const std::string& tag, std::map<std::string, std::string> variables) {
  variables.emplace("EXPHIL_NATIVE_LIBCUDA", EXPHIL_FAKE_CUDA);
  return run_tests(tag, variables);
}

FakeCuda& fake() {
  static FakeCuda* const calls = [] {
    void* library = dlopen(EXPHIL_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    return static_cast<FakeCuda*>(dlsym(library, "fake_cuda"));
  }();
  return *calls;
}

void require_passed(const RunResult& run) {
  INFO(run.output);
  REQUIRE(run.status == 0);
}

Failing failing_driver_calls(int result) {
  return [result](int n, const std::function<void()>& call) {
    fake().fail_any(result, n);
    call();
    return fake().fail_any(0, -1);
  };
}

core::Error thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const core::Error& error) {
    return error;
  }
  FAIL("nothing was thrown");
  throw std::logic_error("not reached");
}

}  // namespace exphil::test
