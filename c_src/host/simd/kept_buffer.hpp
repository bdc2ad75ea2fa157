// Float memory of gradients, kept for the next call. A training loop makes the same call again and again, and
// to a policy of some size fresh memory costs a tenth of it, as page faults. Movable, single owner; any
// thread.
#pragma once

#include <cstdint>

#include "core/backend.hpp"

namespace exphil::host {

// What all calls together keep while none runs, at most. 32 windows of 60 frames of a policy with 2 layers of
// Mamba, d_model 256, take 105 MB.
inline constexpr std::int64_t kKeptBytes = std::int64_t{128} << 20;

class KeptBuffer {
 public:
  KeptBuffer() = default;
  // 64-byte aligned, with whatever values an earlier call left. Throws out_of_memory.
  explicit KeptBuffer(std::int64_t floats);
  float* data() const { return static_cast<float*>(block_.data()); }

 private:
  core::ResultBuffer block_;
};

}  // namespace exphil::host
