// The name and the defines of one compiled kernel variant. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace exphil::cuda {

// A file of kernels/, its -D defines ("STATE=16"), and an extern "C" __global__ entry in it.
struct KernelSpec {
  std::string file;                  // "scan/general.cu"
  std::string entry;                 // "selective_scan"
  std::vector<std::string> defines;  // the order affects only the cache's key

  bool operator==(const KernelSpec& other) const {
    return file == other.file && entry == other.entry && defines == other.defines;
  }
};

// "NAME=value"
inline std::string define(const char* name, std::int64_t value) {
  return std::string(name) + "=" + std::to_string(value);
}

}  // namespace exphil::cuda
