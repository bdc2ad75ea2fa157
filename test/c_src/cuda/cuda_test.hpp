// Shared by the tests of c_src/cuda: whether NVRTC and a device are available, temporary folders and
// environment variables, and runs of this program over the fake driver.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/error.hpp"
#include "cuda/fake_cuda.hpp"
#include "support/faults.hpp"

namespace exphil::test {

// False, after one line on stderr that says what is skipped and why. Use: if (!have_nvrtc()) return;
bool have_nvrtc();
bool have_device();  // a real one, and NVRTC

// Sets a variable (null: removes it) and restores its previous value.
class Environment {
 public:
  Environment(const char* name, const char* value);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::string name_, before_;
  bool was_set_;
};

// A new empty folder, removed with its contents.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

std::string read_file(const std::string& path);

struct RunResult {
  int status = -1;  // of the child: 0 where at least one test ran and all passed
  std::string output;
};

// Runs the tests with `tag` in a child process, with these variables set. A process keeps the driver that it
// opened, so every kind of driver needs its own process.
RunResult run_tests(const std::string& tag, const std::map<std::string, std::string>& variables);
// The same over the fake driver.
RunResult run_with_slow_exit(const std::string& tag);  // support/slow_exit.cpp
RunResult run_over_fake(const std::string& tag, std::map<std::string, std::string> variables = {});
// Ends the test, with the child's output, where the child failed.
void require_passed(const RunResult& run);

// The controls of the fake driver, in such a child.
FakeCuda& fake();

// Results of the driver, as CUDA numbers them.
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kIllegalAddress = 700;

// The driver call that does work (see FakeCuda::fail_any) number n returns `result`, a CUresult.
Failing failing_driver_calls(int result);

// The error that `call` throws; fails the test where it throws nothing.
core::Error thrown_by(const std::function<void()>& call);

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace exphil::test
