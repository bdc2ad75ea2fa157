// Copies results from the device to host memory: directly where that is pinned, else through pinned memory.
// Used by the operators' calls on host tensors. One thread at a time.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

#include "cuda/device/context.hpp"

namespace exphil::cuda {

// Where a kernel finds host memory that is pinned, by its first and last byte; 0 where it is not. A context
// is current.
CUdeviceptr pinned_address(const void* data, std::size_t bytes);

class Download {
 public:
  explicit Download(Context& context) : context_(context) {}

  // Queues a copy on `stream`; does nothing where `to` is null or there are no bytes. Source and destination
  // must stay valid until the stream has been synchronised. The context is current.
  void add(CUstream stream, void* to, CUdeviceptr from, std::size_t bytes);

  // Call after the streams have been synchronised: copies what went through pinned memory to its destination.
  void finish();

 private:
  struct Staged {
    void* to;
    std::size_t bytes;
    PinnedBuffer buffer;
  };

  Context& context_;
  std::vector<Staged> staged_;
};

}  // namespace exphil::cuda
