// One frame of each of many agents on a CUDA device, through the row kernels: core::Policy's calls of batches
// and groups. Used by cuda/policy/policy.cpp, with the context current where nothing else is said; any thread
// may call, several concurrently.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "core/policy/policy.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/group_memory.hpp"
#include "cuda/policy/ordered_stream.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/slices.hpp"
#include "cuda/policy/state_arena.hpp"
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

class AgentBatches {
 public:
  // others: of the policy's longer work, among which are batches of more agents than hurry. few: so many
  // agents in a call do not come here.
  AgentBatches(std::shared_ptr<Context> context, const PolicyDims& dims, const RowKernels& kernels,
               const PolicyTuning& tuning, StateArena& arena, OrderedStream& stream, SlicePipeline& others,
               std::int64_t few);

  // Policy::advance_group(), and where is_right is given Policy::advance_group_if().
  bool advance(const core::GroupStates& states, std::int64_t count, const BatchRows& rows,
               const std::function<bool()>& is_right = {});
  // Whether a frame of so many may begin with states that are a guess. Needs no context.
  bool may_guess(std::int64_t count) const;
  std::unique_ptr<core::GroupMemory> group_memory(std::int64_t count) const;
  int copying_helpers(std::int64_t count) const;             // needs no context
  void reserve(std::int64_t count, int at_once);             // Policy::reserve_batch(), without the states
  std::size_t group_bytes() const { return *group_bytes_; }  // of what group_memory() made; needs no context

 private:
  bool hurry(std::int64_t count) const;  // so many agents
  // Of those who hurry: a free one, in their order, so that batches that come one after another all have the
  // first. It has the memory for so many, or is the first. Where none is free it waits for the first.
  std::pair<SlicePipeline&, SlicePipeline::Turn> pipeline_for(std::int64_t count);
  void make_pipeline();

  const std::shared_ptr<Context> context_;
  const PolicyDims& dims_;
  const RowKernels& kernels_;
  const PolicyTuning tuning_;
  StateArena& arena_;
  SlicePipeline& others_;
  const std::int64_t few_;
  const CudaGroupMemory::HeldBytes group_bytes_ = std::make_shared<std::atomic<std::size_t>>(0);
  OrderedStream& stream_;
  // Of those who hurry, which a long prefill must not hold up. All but the first are made where somebody
  // reserves memory for several batches at once.
  std::mutex making_;
  std::array<std::unique_ptr<SlicePipeline>, PolicyTuning::kMostBatches> frames_;
  std::atomic<std::size_t> made_{0};
};

}  // namespace exphil::cuda
