// Opens libcuda and libnvrtc and fills their tables; see driver.hpp.
#include "cuda/device/driver.hpp"

#include <dlfcn.h>

#include <vector>

#include "core/error.hpp"
#include "cuda/device/settings.hpp"

namespace exphil::cuda {
namespace {

using core::ErrorKind;
using core::fail;

class Library {
 public:
  // what: for messages ("the CUDA driver (libcuda)"); variable: overrides the names.
  Library(const std::vector<std::string>& candidates, const std::string& what, const std::string& variable)
      : what_(what) {
    std::string answers;
    for (const std::string& name : candidates) {
      // Never closed: see driver.hpp.
      handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) {
        name_ = name;
        return;
      }
      const char* answer = dlerror();
      answers += "\n  " + name + ": " + (answer == nullptr ? "no reason given" : answer);
    }
    fail(ErrorKind::backend_unavailable, "", what, " was not found (", variable,
         " overrides its name); tried:", answers);
  }

  void* find(const char* symbol) const { return dlsym(handle_, symbol); }

  void* require(const char* symbol) const {
    void* address = find(symbol);
    if (address != nullptr) return address;
    // Built against CUDA 12.8 or later, run on an older driver: the plain symbol has the same signature.
    if (std::string(symbol) == "cuEventElapsedTime_v2") address = find("cuEventElapsedTime");
    if (address == nullptr) {
      fail(ErrorKind::backend_unavailable, "", what_, ", opened as ", name_, ", lacks ", symbol,
           ": it is older than this library needs");
    }
    return address;
  }

  const std::string& name() const { return name_; }

 private:
  std::string what_, name_;
  void* handle_ = nullptr;
};

// Two levels, so that cuda.h's renaming macros are applied before the name becomes text.
#define EXPHIL_TEXT(name) #name
#define EXPHIL_SYMBOL(name) EXPHIL_TEXT(name)
#define EXPHIL_REQUIRE(name) \
  table.name = reinterpret_cast<decltype(table.name)>(library.require(EXPHIL_SYMBOL(name)));
#define EXPHIL_FIND(name) \
  table.name = reinterpret_cast<decltype(table.name)>(library.find(EXPHIL_SYMBOL(name)));

std::string result_name(const Driver& table, CUresult result) {
  const char* name = nullptr;
  const bool known = table.cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr;
  return core::message(known ? name : "unknown error", " (", static_cast<int>(result), ")");
}

Driver load_driver() {
  const Library library(libcuda_candidates(), "the CUDA driver (libcuda)", "EXPHIL_NATIVE_LIBCUDA");
  Driver table;
  EXPHIL_CUDA_REQUIRED_CALLS(EXPHIL_REQUIRE)
  EXPHIL_CUDA_OPTIONAL_CALLS(EXPHIL_FIND)
  table.library = library.name();
  const CUresult result = table.cuInit(0);
  if (result != CUDA_SUCCESS) {
    fail(ErrorKind::backend_unavailable, "", "the CUDA driver ", table.library,
         " does not start: cuInit returned ", result_name(table, result));
  }
  return table;
}

int driver_major() {
  try {
    int version = 0;
    if (driver().cuDriverGetVersion(&version) == CUDA_SUCCESS) return version / 1000;
  } catch (const core::Error&) {
    // NVRTC compiles without a driver too (the tests do so); any major version will do.
  }
  return 0;
}

Nvrtc load_nvrtc() {
  const Library library(libnvrtc_candidates(driver_major()), "the CUDA run-time compiler (libnvrtc)",
                        "EXPHIL_NATIVE_LIBNVRTC");
  Nvrtc table;
  EXPHIL_NVRTC_CALLS(EXPHIL_REQUIRE)
  table.library = library.name();
  if (table.nvrtcVersion(&table.major, &table.minor) != NVRTC_SUCCESS) {
    fail(ErrorKind::backend_unavailable, "", table.library, " does not report its version");
  }
  return table;
}

// A table, or the reason why there is none; decided once.
template <class Table>
class Outcome {
 public:
  explicit Outcome(Table (*load)()) {
    try {
      table_ = load();
    } catch (const core::Error& error) {
      reason_ = error.what();
    }
  }
  const Table& get() const {
    if (!reason_.empty()) fail(ErrorKind::backend_unavailable, "", reason_);
    return table_;
  }

 private:
  Table table_;
  std::string reason_;
};

}  // namespace

// Both are leaked on purpose: threads may still call while static destructors run at VM exit.
const Driver& driver() {
  static const auto* outcome = new Outcome<Driver>(load_driver);
  return outcome->get();
}

const Nvrtc& nvrtc() {
  static const auto* outcome = new Outcome<Nvrtc>(load_nvrtc);
  return outcome->get();
}

}  // namespace exphil::cuda
