// Device memory for the recurrent states of one policy's sessions and snapshots: equal slots in chunks that
// are kept as long as the policy or a state exists. Taking and returning a slot does no device work (except
// to allocate a chunk), so any thread may free a state. A slot has the values of
// its previous owner. Whoever takes it overwrites them after all work that was enqueued for that owner: a new
// session clears it on the policy's stream, a frame writes the next state.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/policy/policy.hpp"
#include "cuda/device/context.hpp"
#include "kernels/policy/arguments.cuh"

namespace exphil::cuda {

class StateArena {
 public:
  // Allocates `slots` states at first. Throws out_of_memory.
  StateArena(std::shared_ptr<Context> context, std::size_t state_bytes, std::int64_t slots);

  CUdeviceptr take();                                        // throws out_of_memory
  void take(policy::StatePlace* places, std::size_t count);  // a slot for each `to`: all of them, or throws
  CUdeviceptr take_at_once();  // throws core::WouldWait where memory would have to be allocated
  void give_back(CUdeviceptr slot) noexcept;
  void give_back(const policy::StatePlace* places, std::size_t count) noexcept;  // each `to`, or all are null
  void reserve(std::size_t count);  // at least so many free slots; throws out_of_memory
  std::size_t state_bytes() const { return state_bytes_; }
  std::size_t held_bytes() const;
  // The first of so many stamps that no state of this arena has had.
  std::uint64_t stamps(std::size_t count) noexcept { return stamps_.fetch_add(count) + 1; }

 private:
  void grow(std::int64_t slots);      // under mutex_, or in the constructor
  void make_room(std::size_t count);  // at least `count` free slots; under mutex_

  std::shared_ptr<Context> context_;
  const std::size_t state_bytes_;
  const std::size_t slot_bytes_;  // of a state, and up to the next multiple of 256
  mutable std::mutex mutex_;
  std::vector<DeviceBuffer> chunks_;
  std::vector<CUdeviceptr> free_;
  std::int64_t slots_ = 0;
  std::atomic<std::uint64_t> stamps_{0};
};

// One agent's state: a slot, and a stamp, which is another one whenever the values are. Keeps the arena
// alive, not the policy.
class CudaState : public core::State {
 public:
  explicit CudaState(const std::shared_ptr<StateArena>& arena)
      : State(arena.get()), arena_(arena), slot_(arena->take()), stamp_(arena->stamps(1)) {}
  ~CudaState() override { arena_->give_back(slot_); }
  CudaState(const CudaState&) = delete;
  CudaState& operator=(const CudaState&) = delete;
  CUdeviceptr slot() const { return slot_; }
  std::uint64_t stamp() const { return stamp_; }
  void set(CUdeviceptr slot, std::uint64_t stamp) { slot_ = slot, stamp_ = stamp; }

 private:
  const std::shared_ptr<StateArena> arena_;
  CUdeviceptr slot_;
  std::uint64_t stamp_;
};

// The state as one of this arena's policy. Throws mismatch.
const CudaState& state_of(const StateArena& arena, const core::State& state);

// Where a call reads and writes the states that it changes: it reads the slot of from[i] and writes a new
// slot, which to[i] then gets; these may be one state. `to` is kept until then. A call that fails before
// commit() leaves every state unchanged. The cost is two acquisitions of the arena's lock and a slot
// for each state during the call, and no copy. Of thousands of states each is looked up when the call reaches
// it, while the device computes those before. Destroy it only when no work on the device uses the slots.
class NextStates {
 public:
  // Whether all states are looked up at once, or thousands when they are reached.
  enum class Lookup { at_once, when_reached };
  // Throws out_of_memory, and mismatch where a state is none of the arena's.
  NextStates(StateArena& arena, core::State* const* from, core::State* const* to, std::int64_t count,
             Lookup lookup = Lookup::at_once);
  // One state, which writes a slot that the caller has taken.
  NextStates(StateArena& arena, const CudaState& from, core::State* const* to, CUdeviceptr taken);
  // A chain: reads `from` for to[0], and for each later one the slot that is written for the one before it.
  NextStates(StateArena& arena, const core::State& from, core::State* const* to, std::int64_t count);
  ~NextStates();
  NextStates(const NextStates&) = delete;
  NextStates& operator=(const NextStates&) = delete;

  // Those of states that were looked up.
  const policy::StatePlace* places() const { return places_; }
  // Looks up the states up to number `end` that were not. Throws as the constructor.
  void reach(std::size_t end);
  // Gives the states their new slots, until the object is destroyed without a commit(): of many states a call
  // does that while it waits for the device. The places are no longer what they were.
  void assign() noexcept;
  void commit() noexcept;  // at most once; assigns where that was not done
  // When they are assigned: the stamp of the first state. Each one after it has the next.
  std::uint64_t first_stamp() const { return first_stamp_; }

 private:
  void exchange() noexcept;
  NextStates(StateArena& arena, std::size_t count, core::State* const* from, core::State* const* to);

  StateArena& arena_;
  core::State *const *from_, *const *to_;
  const std::size_t count_;
  std::size_t reached_ = 0;
  policy::StatePlace one_{};  // so that one agent's step allocates nothing
  // Of several, without values: pages are touched when they are reached.
  std::unique_ptr<policy::StatePlace[]> many_;
  policy::StatePlace* places_;
  std::uint64_t first_stamp_ = 0;
  bool assigned_ = false, committed_ = false;
};

}  // namespace exphil::cuda
