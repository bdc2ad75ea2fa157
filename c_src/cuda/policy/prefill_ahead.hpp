// The states of new agents after some frames, computed beside all other work of a policy: core::PrefillAhead
// over the row kernels. Used by cuda/policy/policy.cpp; any thread may call, but for one object one at a
// time.
//
// What is under way has a lane, a stream and memory of its own; a call that finds none free waits for one.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/policy/policy.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/row_lane.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/state_arena.hpp"
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

class PrefillLanes {
 public:
  // All but the context outlive this object. initial: a new agent's state, which nothing changes.
  PrefillLanes(std::shared_ptr<Context> context, const PolicyDims& dims, const PolicyTuning& tuning,
               const RowKernels& kernels, const std::shared_ptr<StateArena>& arena);
  ~PrefillLanes();

  // Of up to so many frames. Null where they are more than a lane takes, or where there are kMostPrefills:
  // those of more sessions take longer one by one than their windows do together. initial: a new agent's
  // state, which nothing changes as long as the object exists.
  static constexpr int kMostPrefills = 128;
  std::unique_ptr<core::PrefillAhead> make(std::int64_t seq, const core::State& initial);

 private:
  class Prefill;
  void reserve(std::int64_t seq);  // under the mutex
  RowLane& free_lane();            // under the mutex
  void enqueue(RowLane& lane, const float* frames, std::int64_t seq, policy::StatePlace place);

  const std::shared_ptr<Context> context_;
  const PolicyDims& dims_;
  const PolicyTuning tuning_;
  const RowKernels& kernels_;
  const std::shared_ptr<StateArena> arena_;

  std::mutex mutex_;
  int prefills_ = 0;
  std::int64_t rows_ = 0;  // of a lane
  std::vector<std::unique_ptr<RowLane>> lanes_;
};

}  // namespace exphil::cuda
