// Settings and their defaults; see settings.hpp.
#include "cuda/device/settings.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "core/environment.hpp"
#include "core/machine_memory.hpp"

namespace exphil::cuda {
namespace {

// Leaked on purpose: calls may still come while static destructors run at VM exit.
std::mutex& settings_mutex() {
  static std::mutex* mutex = new std::mutex;
  return *mutex;
}
Settings& configured() {
  static Settings* settings = new Settings;
  return *settings;
}

using core::environment;

std::size_t default_pinned_limit() {
  return std::clamp(core::machine_memory() / 16, std::size_t{512} << 20, std::size_t{8} << 30);
}

// A path relative to the folder in which the process was when a setting was read first: it may go to another.
std::string absolute(const std::string& path) {
  static const std::string* const start = [] {
    std::error_code error;
    return new std::string(std::filesystem::current_path(error).string());
  }();
  return path.empty() || path[0] == '/' || start->empty() ? path : *start + "/" + path;
}

void override_from(const char* name, std::string* field) {
  std::string value = environment(name);
  if (!value.empty()) *field = std::move(value);
}

std::string default_cache_directory() {
  const std::string xdg = environment("XDG_CACHE_HOME");
  // The XDG base directory specification says to ignore relative paths.
  if (!xdg.empty() && xdg[0] == '/') return xdg + "/exphil_native";
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache/exphil_native";
}

}  // namespace

void set_settings(const Settings& given) {
  {
    std::lock_guard<std::mutex> lock(settings_mutex());
    configured() = given;
  }
  settings();  // refuses an invalid environment now, not at the first call that needs it
}

Settings settings() {
  Settings current;
  {
    std::lock_guard<std::mutex> lock(settings_mutex());
    current = configured();
  }
  override_from("EXPHIL_NATIVE_KERNELS", &current.kernels_directory);
  override_from("EXPHIL_NATIVE_CACHE", &current.cache_directory);
  override_from("EXPHIL_NATIVE_LIBCUDA", &current.libcuda);
  override_from("EXPHIL_NATIVE_LIBNVRTC", &current.libnvrtc);
  if (const auto limit = core::pinned_limit_from_environment()) {
    current.pinned_limit = static_cast<std::size_t>(*limit);
  }
  if (current.pinned_limit == 0) current.pinned_limit = default_pinned_limit();
  if (current.kernels_directory.empty()) current.kernels_directory = "kernels";
  if (current.cache_directory.empty()) current.cache_directory = default_cache_directory();
  current.kernels_directory = absolute(current.kernels_directory);
  current.cache_directory = absolute(current.cache_directory);
  return current;
}

std::vector<std::string> libcuda_candidates() {
  const std::string chosen = settings().libcuda;
  if (!chosen.empty()) return {chosen};
  return {"libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"};
}

std::vector<std::string> libnvrtc_candidates(int preferred_major) {
  const std::string chosen = settings().libnvrtc;
  if (!chosen.empty()) return {chosen};
  std::vector<std::string> names;
  if (preferred_major > 0) names.push_back("libnvrtc.so." + std::to_string(preferred_major));
  for (const char* name : {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"}) {
    if (names.empty() || names[0] != name) names.push_back(name);
  }
  // Ordered by version first and folder second: a matching major version in a toolkit's folder is preferred
  // to another major version on the loader's path.
  std::vector<std::string> folders = {""};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const std::string home = environment(variable);
    if (!home.empty()) folders.push_back(home + "/lib64/");
  }
  folders.push_back("/usr/local/cuda/lib64/");
  std::vector<std::string> candidates;
  for (const std::string& name : names) {
    for (const std::string& folder : folders) candidates.push_back(folder + name);
  }
  return candidates;
}

}  // namespace exphil::cuda
