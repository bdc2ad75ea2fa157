// Runs when the library is loaded: finds its kernels in its own folder, and registers every handler by name
// where the process has an XLA that other libraries cannot see (EXLA's NIF opens it in local scope).
//
// A frontend with a registration call of its own (JAX) uses the exported handlers and ignores this
// registration.
#include <dlfcn.h>
#include <link.h>
#include <xla/ffi/api/c_api.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "xla/handlers.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/device/settings.hpp"
#endif

namespace exphil::xla {

namespace {

using GetApi = const XLA_FFI_Api* (*)();

// xla::ffi::GetXlaFfiApi(), and its C twin of later versions.
constexpr const char* kGetApiSymbols[] = {"_ZN3xla3ffi12GetXlaFfiApiEv", "XLA_FFI_GetApi"};

// Every library of the process whose name may be XLA's. EXPHIL_NATIVE_XLA names one more, for a build of XLA
// under another name.
std::vector<std::string> candidates() {
  std::vector<std::string> names;
  if (const char* named = std::getenv("EXPHIL_NATIVE_XLA")) names.emplace_back(named);
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        const std::string path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        const std::string file = path.substr(path.rfind('/') + 1);
        if (file.find("xla") != std::string::npos && file.find("exphil") == std::string::npos) {
          static_cast<std::vector<std::string>*>(data)->push_back(path);
        }
        return 0;
      },
      &names);
  return names;
}

const XLA_FFI_Api* find_api() {
  for (const std::string& name : candidates()) {
    // RTLD_NOLOAD: only libraries that are already loaded. The handle is kept, so that XLA stays loaded as
    // long as its handlers.
    void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    for (const char* symbol : kGetApiSymbols) {
      if (auto get = reinterpret_cast<GetApi>(dlsym(library, symbol))) return get();
    }
    dlclose(library);
  }
  return nullptr;
}

// "" where the handler was registered.
std::string register_handler(const XLA_FFI_Api* api, const NamedHandler& handler) {
  XLA_FFI_Handler_Register_Args args{};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {handler.name, std::char_traits<char>::length(handler.name)};
  args.platform = {handler.platform, std::char_traits<char>::length(handler.platform)};
  args.bundle.initialize = handler.prepares ? handler.function : nullptr;
  args.bundle.execute = handler.function;
  args.traits = handler.traits;
  XLA_FFI_Error* error = api->XLA_FFI_Handler_Register(&args);
  if (error == nullptr) return "";
  return core::message(handler.name, " on ", handler.platform, ": ", take_message(api, error));
}

// The result, for later queries. Written while the library is loaded, only read later.
struct Registration {
  std::string status = "not loaded";
  std::vector<std::string> done;  // "exphil_selective_scan Host"
};

Registration& registration() {
  static auto* const found = new Registration;  // leaked: readers may come until the process ends
  return *found;
}

void register_all() {
  Registration& result = registration();
  const XLA_FFI_Api* api = find_api();
  if (api == nullptr) {
    result.status = "no XLA is loaded in this process";
    return;
  }
  std::string problems;
  for (const NamedHandler& handler : handlers()) {
    const std::string problem = register_handler(api, handler);
    if (problem.empty()) {
      result.done.push_back(core::message(handler.name, " ", handler.platform));
    } else {
      problems += (problems.empty() ? "" : "; ") + problem;
    }
  }
  result.status = problems.empty() ? "registered" : problems;
}

#ifdef EXPHIL_CUDA
// priv/kernels is in the library's folder; EXPHIL_NATIVE_KERNELS takes precedence.
void find_kernels() {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&find_kernels), &self) == 0 || self.dli_fname == nullptr) return;
  const std::string path = self.dli_fname;
  cuda::Settings settings;
  settings.kernels_directory = path.substr(0, path.rfind('/') + 1) + "kernels";
  cuda::set_settings(settings);
}
#endif

__attribute__((constructor)) void on_load() {
  try {
#ifdef EXPHIL_CUDA
    find_kernels();
#endif
    register_all();
  } catch (const std::exception& error) {
    registration().status = error.what();
  }
}

}  // namespace

}  // namespace exphil::xla

// "registered", or why not every handler is registered in an XLA of this process. Never null.
extern "C" __attribute__((visibility("default"))) const char* exphil_native_xla_status() {
  return exphil::xla::registration().status.c_str();
}

// Whether XLA has the handler: 1 or 0. `handler` is its name and platform, "exphil_selective_scan Host".
extern "C" __attribute__((visibility("default"))) int exphil_native_xla_registered(const char* handler) {
  const std::vector<std::string>& done = exphil::xla::registration().done;
  return std::find(done.begin(), done.end(), handler) != done.end() ? 1 : 0;
}
