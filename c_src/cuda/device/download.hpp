// Results on their way from the device to host memory: straight into pinned memory, else through it. Used by
// the operators' calls on host tensors. One thread at a time.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

#include "cuda/device/context.hpp"

namespace exphil::cuda {

class Download {
 public:
  explicit Download(Context& context) : context_(context) {}

  // Queues a copy on `stream`; nothing where `to` is null or there are no bytes. Both ends stay in use until
  // the stream has been synchronised. The context is current.
  void add(CUstream stream, void* to, CUdeviceptr from, std::size_t bytes);

  // After the streams have been synchronised: what went through pinned memory gets to its place.
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
