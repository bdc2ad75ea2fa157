// Settings and their defaults; see settings.hpp.
#include "cuda/device/settings.hpp"

#include <cerrno>
#include <cstdlib>
#include <mutex>

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

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
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

void set_settings(const Settings& settings) {
  std::lock_guard<std::mutex> lock(settings_mutex());
  configured() = settings;
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
  const std::string limit = environment("EXPHIL_NATIVE_PINNED_LIMIT");
  if (!limit.empty()) {
    char* end = nullptr;
    errno = 0;
    const unsigned long long bytes = std::strtoull(limit.c_str(), &end, 10);
    if (errno == 0 && *end == '\0' && limit[0] != '-') current.pinned_limit = bytes;
  }
  if (current.kernels_directory.empty()) current.kernels_directory = "kernels";
  if (current.cache_directory.empty()) current.cache_directory = default_cache_directory();
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
  // By preference first and folder second: a matching major in a toolkit's folder beats another major on the
  // loader's path.
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
