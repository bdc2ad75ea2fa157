// Launches a kernel with typed arguments: launch(context, function, {grid}, {block}, shared, stream,
// args...). Arguments are passed by value and must have the types and order that the kernel declares.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// The driver's limit on the x dimension of a grid.
inline constexpr std::int64_t kMostGridBlocks = (std::int64_t{1} << 31) - 1;

// The x dimension of a grid of so many blocks. Throws limit_exceeded, which names the argument, for more than
// a grid has. what: what needs them, where that is not the argument itself.
inline unsigned grid_blocks(std::int64_t blocks, const std::string& argument, const char* what = nullptr) {
  if (blocks > kMostGridBlocks) {
    core::fail(core::ErrorKind::limit_exceeded, argument, what != nullptr ? what : argument.c_str(),
               " needs ", blocks, " blocks on the device; the limit is ", kMostGridBlocks);
  }
  return static_cast<unsigned>(blocks);
}

template <class... Args>
void launch(Context& context, CUfunction function, Dim3 grid, Dim3 block, std::size_t shared_bytes,
            CUstream stream, const Args&... args) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
  context.check(driver().cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                        static_cast<unsigned>(shared_bytes), stream, pointers, nullptr),
                "cuLaunchKernel");
}

// As launch(), but the kernel may begin while the one before it in the stream still runs, as soon as that one
// lets it (griddepcontrol.launch_dependents); it waits for its results by itself (griddepcontrol.wait). A
// plain launch where the device or the driver is too old: graphs capture such launches since 12.3.
template <class... Args>
void launch_overlapped(Context& context, CUfunction function, Dim3 grid, Dim3 block, std::size_t shared_bytes,
                       CUstream stream, const Args&... args) {
  const DeviceProperties& device = context.properties();
  if (device.compute_major < 9 || device.driver_version < 12030 || driver().cuLaunchKernelEx == nullptr) {
    launch(context, function, grid, block, shared_bytes, stream, args...);
    return;
  }
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = grid.x, config.gridDimY = grid.y, config.gridDimZ = grid.z;
  config.blockDimX = block.x, config.blockDimY = block.y, config.blockDimZ = block.z;
  config.sharedMemBytes = static_cast<unsigned>(shared_bytes);
  config.hStream = stream;
  config.attrs = &attribute, config.numAttrs = 1;
  context.check(driver().cuLaunchKernelEx(&config, function, pointers, nullptr), "cuLaunchKernelEx");
}

// When a launch begins: when the one before it in the stream has ended, or beside that one (above).
enum class Begin { after, beside };

template <class... Args>
void launch(Begin begin, Context& context, CUfunction function, Dim3 grid, Dim3 block,
            std::size_t shared_bytes, CUstream stream, const Args&... args) {
  if (begin == Begin::beside) {
    launch_overlapped(context, function, grid, block, shared_bytes, stream, args...);
  } else {
    launch(context, function, grid, block, shared_bytes, stream, args...);
  }
}

// A cooperative launch: all blocks are resident together, so that they may wait for each other.
template <class... Args>
void launch_cooperative(Context& context, CUfunction function, Dim3 grid, Dim3 block,
                        std::size_t shared_bytes, CUstream stream, const Args&... args) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
  context.check(
      driver().cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                         static_cast<unsigned>(shared_bytes), stream, pointers),
      "cuLaunchCooperativeKernel");
}

}  // namespace exphil::cuda
