// The name of one compiled kernel variant, and how its defines are written. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace exphil::cuda {

// A file of kernels/, its -D defines ("STATE=16"), and an extern "C" __global__ entry in it.
struct KernelSpec {
  std::string file;                  // "scan/general.cu"
  std::string entry;                 // "selective_scan"
  std::vector<std::string> defines;  // order matters to the cache's key only

  bool operator==(const KernelSpec& other) const {
    return file == other.file && entry == other.entry && defines == other.defines;
  }
};

// "NAME=value"
inline std::string define(const char* name, std::int64_t value) {
  return std::string(name) + "=" + std::to_string(value);
}

}  // namespace exphil::cuda
