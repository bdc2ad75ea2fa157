// The status of the library of XLA's custom calls (c_src/xla). EXLA opens that library; this file looks it up
// in the process and shares no code with it.
#include <dlfcn.h>
#include <limits.h>

#include "nif/functions.hpp"

namespace exphil::nif {

namespace {

// A symbol of the library at `path`, or null where this process has not opened it.
template <class Function>
Function find_symbol(const std::string& path, const char* name) {
  // dlopen copies the path to the stack, whatever its length, and reads it up to a zero byte.
  if (path.size() >= PATH_MAX || path.find('\0') != std::string::npos) {
    core::fail(core::ErrorKind::invalid_argument, "path", "path must be below ", PATH_MAX,
               " bytes, none of them zero; got ", path.size(), " bytes");
  }
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto function = reinterpret_cast<Function>(dlsym(library, name));
  dlclose(library);  // RTLD_NOLOAD counted a reference; EXLA keeps the library open
  return function;
}

}  // namespace

Term xla_status(Call& call, std::string path) {
  const auto status = find_symbol<const char* (*)()>(path, "exphil_native_xla_status");
  return status == nullptr ? encode_atom(call, "nil") : encode(call, std::string(status()));
}

Term xla_registered(Call& call, std::string path, std::string target, std::string platform) {
  const auto registered = find_symbol<int (*)(const char*)>(path, "exphil_native_xla_registered");
  const bool found = registered != nullptr && registered((target + " " + platform).c_str()) == 1;
  return encode_atom(call, found ? "true" : "false");
}

}  // namespace exphil::nif
