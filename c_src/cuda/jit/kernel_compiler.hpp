// Compiles a kernel's source to an image that the driver can load, through NVRTC and the cache on disk. Needs
// no device. Used by KernelCache, which keeps the loaded functions, and by the tests. Safe from any thread:
// different kernels compile concurrently.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cuda/jit/kernel_cache.hpp"

namespace exphil::cuda {

// Everything that determines NVRTC's output.
struct CompileInput {
  std::string file, source;                    // name and text of the .cu file
  std::map<std::string, std::string> headers;  // every .cuh under the kernels folder: "kernels/..." and text
  std::vector<std::string> options;
  bool ptx = false;  // NVRTC does not support the device's architecture: the driver translates PTX
};

// Whether kernels for this architecture may use the instructions of warpgroups: those of sm_90a, which NVRTC
// knows from version 12 on.
bool compiles_warpgroups(int architecture);

// Reads the kernels folder and chooses the options. Throws file_error where a file cannot be read,
// backend_unavailable without NVRTC.
CompileInput prepare_compile(const KernelSpec& spec, int architecture);

// Hexadecimal, unique to the input and NVRTC's version. Includes all headers, used or not.
std::string cache_key(const CompileInput& input);

// Throws compile_failed with NVRTC's log.
std::string compile(const CompileInput& input);

// The image of `spec` from the disk cache, else compiled and stored there.
std::string cached_image(const KernelSpec& spec, int architecture);

}  // namespace exphil::cuda
