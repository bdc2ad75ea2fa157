// Device memory for the recurrent states of one policy's sessions and snapshots: equal slots in chunks that
// are never given back while the policy or a state lives. Taking and returning a slot does no device work
// (but for a chunk when it grows), so a state may be freed from any thread; whoever takes a slot clears it,
// on the policy's stream, after all that was still enqueued for the slot's last owner.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/policy/policy.hpp"
#include "cuda/device/context.hpp"

namespace exphil::cuda {

class StateArena {
 public:
  // Room for `slots` states at once. Throws out_of_memory.
  StateArena(std::shared_ptr<Context> context, std::size_t slot_bytes, std::int64_t slots);

  CUdeviceptr take();  // throws out_of_memory
  void give_back(CUdeviceptr slot) noexcept;
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::size_t held_bytes() const;

 private:
  void grow(std::int64_t slots);  // under mutex_, or in the constructor

  std::shared_ptr<Context> context_;
  const std::size_t slot_bytes_;
  mutable std::mutex mutex_;
  std::vector<DeviceBuffer> chunks_;
  std::vector<CUdeviceptr> free_;
  std::int64_t slots_ = 0;
};

// One agent's state: a slot. Keeps the arena alive, not the policy.
class CudaState : public core::State {
 public:
  explicit CudaState(std::shared_ptr<StateArena> arena) : arena_(std::move(arena)), slot_(arena_->take()) {}
  ~CudaState() override { arena_->give_back(slot_); }
  CudaState(const CudaState&) = delete;
  CudaState& operator=(const CudaState&) = delete;
  CUdeviceptr slot() const { return slot_; }
  const StateArena* arena() const { return arena_.get(); }

 private:
  std::shared_ptr<StateArena> arena_;
  CUdeviceptr slot_;
};

}  // namespace exphil::cuda
