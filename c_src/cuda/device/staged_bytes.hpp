// Memory of the host for one copy to or from the device: page-locked where the pool has room, which needs no
// new pages and no copy by the driver, else ordinary. Undefined at first. Used by one call.
#pragma once

#include <cstddef>
#include <memory>

#include "cuda/device/context.hpp"

namespace exphil::cuda {

class StagedBytes {
 public:
  StagedBytes(Context& context, std::size_t bytes)
      : pinned_(context.pinned_pool().try_stage(bytes)),
        plain_(pinned_ ? nullptr : new std::byte[bytes]),
        bytes_(bytes) {}
  std::byte* data() const { return pinned_ ? pinned_.as<std::byte>() : plain_.get(); }
  std::size_t size() const { return bytes_; }

 private:
  const PinnedBuffer pinned_;
  const std::unique_ptr<std::byte[]> plain_;
  const std::size_t bytes_;
};

}  // namespace exphil::cuda
