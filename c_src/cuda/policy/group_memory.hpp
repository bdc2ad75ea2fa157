// What a policy with a gated cell keeps of a group of states: the products of the states, which need no frame
// (policy_cell_ahead). They are computed while the answers to a frame are on their way to the caller, and the
// next frame begins with them, unless a state has changed meanwhile.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/policy/policy.hpp"
#include "cuda/device/context.hpp"
#include "kernels/policy/arguments.cuh"

namespace exphil::cuda {

class CudaGroupMemory : public core::GroupMemory {
 public:
  // Bytes that groups hold on the device. A group may end later than its policy.
  using HeldBytes = std::shared_ptr<std::atomic<std::size_t>>;
  // values: floats of a state's products. Throws out_of_memory.
  CudaGroupMemory(std::shared_ptr<Context> context, std::int64_t count, std::int64_t values, HeldBytes held);
  ~CudaGroupMemory() override;  // waits for what writes to it

  // Whether products() are those of these states.
  bool has(const core::State* const* states, std::int64_t count) const;
  float* products() const { return products_.as<float>(); }

  // A frame of the group begins, after which the products are those of other states.
  void begin();
  // Where the states will be that the frame computes, as the device reads it. Waits for the frame before the
  // last one.
  const policy::StatePlace* next_places(const policy::StatePlace* places, std::int64_t rows);
  // Later work of the stream waits for what wrote the products last: a frame of a group may be computed in
  // other streams than the one before it.
  void make_wait(CUstream stream) const;
  // What the stream does up to here writes the products of those.
  void written_by(CUstream stream);
  // No products were written after all.
  void forget() { is_written_ = false; }
  // The frame has ended, and the products will be those of its states, where they are written: of the states
  // that have this stamp and those after it.
  void commit(std::uint64_t first_stamp);

 private:
  const std::shared_ptr<Context> context_;
  const std::int64_t count_;
  const HeldBytes held_;
  DeviceBuffer products_;
  // Two tables: the device may still read the one of the frame before.
  PinnedBuffer places_;
  int table_ = 0;
  Event written_[2];                // the products of each
  CUstream last_stream_ = nullptr;  // that wrote them last, and its event
  CUevent last_written_ = nullptr;
  bool is_written_ = false;
  std::uint64_t first_stamp_ = 0;  // of the first state, the next one has the next; 0: there are no products
};

}  // namespace exphil::cuda
