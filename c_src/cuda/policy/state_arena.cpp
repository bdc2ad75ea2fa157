// See state_arena.hpp.
#include "cuda/policy/state_arena.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/tensor.hpp"

namespace exphil::cuda {

StateArena::StateArena(std::shared_ptr<Context> context, std::size_t slot_bytes, std::int64_t slots)
    : context_(std::move(context)), slot_bytes_((slot_bytes + 255) / 256 * 256) {
  grow(std::max<std::int64_t>(slots, 1));
}

void StateArena::grow(std::int64_t slots) {
  const std::int64_t bytes =
      core::checked_multiply(static_cast<std::int64_t>(slot_bytes_), slots, ":max_sessions");
  free_.reserve(static_cast<std::size_t>(slots_ + slots));  // so that give_back never allocates
  chunks_.reserve(chunks_.size() + 1);
  chunks_.push_back(context_->device_pool().allocate(static_cast<std::size_t>(bytes)));
  slots_ += slots;
  const CUdeviceptr first = chunks_.back().address();
  for (std::int64_t i = slots; i > 0; --i)
    free_.push_back(first + static_cast<std::size_t>(i - 1) * slot_bytes_);
}

CUdeviceptr StateArena::take() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) {
    // Half as much again; where that does not fit, one more state may.
    try {
      grow(std::max<std::int64_t>(slots_ / 2, 16));
    } catch (const core::Error& error) {
      if (error.kind() != core::ErrorKind::out_of_memory) throw;
      grow(1);
    }
  }
  const CUdeviceptr slot = free_.back();
  free_.pop_back();
  return slot;
}

void StateArena::give_back(CUdeviceptr slot) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(slot);  // within the capacity that grow() reserved
}

std::size_t StateArena::held_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<std::size_t>(slots_) * slot_bytes_;
}

}  // namespace exphil::cuda
