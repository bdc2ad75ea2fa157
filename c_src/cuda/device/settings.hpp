// Process-wide settings of the CUDA backend: the locations of the kernels, the compiled-kernel cache and the
// two libraries. nif/ sets them from application config at load; environment variables of the VM take
// precedence. Each is read on first use, so set them before. Safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace exphil::cuda {

struct Settings {
  std::string kernels_directory;  // EXPHIL_NATIVE_KERNELS; "" is "kernels" under the working directory
  std::string cache_directory;    // EXPHIL_NATIVE_CACHE; "" is XDG_CACHE_HOME/exphil_native, else under HOME
  std::string libcuda;            // EXPHIL_NATIVE_LIBCUDA; "" tries the usual names
  std::string libnvrtc;           // EXPHIL_NATIVE_LIBNVRTC
  // EXPHIL_NATIVE_PINNED_LIMIT, bytes of pinned memory; 0 is a sixteenth of the machine's memory, but at
  // least 512 MB and at most 8 GB. It is taken as calls need it: beside 64 loops of scans of 16 MB on an H200
  // 512 MB were too little (143 of 2880 frames late), 8 GB enough (none).
  std::size_t pinned_limit = 0;
};

// Throws as settings() does; the settings take effect even then.
void set_settings(const Settings& settings);

// The current settings, with the environment and the defaults applied. Folders are absolute: relative ones
// are those of the folder in which the process was when it first asked. cache_directory is "" only where
// config, environment and home directory name none: nothing is cached on disk then. Throws invalid_argument
// with the variable's name where EXPHIL_NATIVE_PINNED_LIMIT is not a number of bytes.
Settings settings();

// The library names for dlopen, in order. An override is the only candidate.
std::vector<std::string> libcuda_candidates();
// preferred_major: the driver's CUDA major version, tried first because an older driver refuses the cubins of
// a newer major version; 0 where unknown.
std::vector<std::string> libnvrtc_candidates(int preferred_major);

}  // namespace exphil::cuda
