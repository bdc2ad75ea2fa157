// The arguments of common/convert.cu. The kernel and its launcher, c_src/cuda/jit/convert.cpp, share them.
#pragma once

namespace exphil {
namespace convert {

// Elements of a half type and as many floats.
struct Arguments {
  const void* from;
  void* to;
  long long count;
};
constexpr int kThreads = 256, kEach = 8;

}  // namespace convert
}  // namespace exphil
