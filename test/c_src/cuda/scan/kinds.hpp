// Kinds of scans, and devices to plan them for, for the tests of scan plans. Nothing is launched.
#pragma once

#include <cstdint>
#include <string>

#include "core/scan/shape.hpp"
#include "cuda/device/context.hpp"
#include "cuda/jit/kernel_spec.hpp"

namespace exphil::test {

inline cuda::DeviceProperties device(int multiprocessors, int shared_kilobytes, int compute_major = 0) {
  cuda::DeviceProperties properties;
  properties.multiprocessors = multiprocessors;
  properties.max_shared_per_block = shared_kilobytes * 1024;
  properties.compute_major = compute_major;
  return properties;
}

inline core::ScanShape kind(std::int64_t batch, std::int64_t seq, std::int64_t dim, std::int64_t state) {
  core::ScanShape p;
  p.batch = batch, p.seq = seq, p.dim = dim, p.state = state;
  return p;
}

// The value of one of a kernel's defines; empty where it has no such define.
inline std::string define_of(const cuda::KernelSpec& spec, const std::string& name) {
  for (const std::string& define : spec.defines) {
    if (define.rfind(name + "=", 0) == 0) return define.substr(name.size() + 1);
  }
  return "";
}

// The same as a number; the test fails where there is none.
inline int number_of(const cuda::KernelSpec& spec, const std::string& name) {
  return std::stoi(define_of(spec, name));
}

}  // namespace exphil::test
