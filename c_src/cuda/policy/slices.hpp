// Work over many rows, split into slices of bounded memory that overlap: while one slice computes, the next
// one's observations are staged through pinned memory by the library's threads and copied in, and the
// previous one's outputs are copied out. Used by cuda/policy/policy.cpp; calls run one after another.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device/context.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

struct Slice {
  const float* obs = nullptr;  // {job.rows, d_input}
  const policy::StatePlace* states =
      nullptr;           // one for each row of a batch, or for each sequence; may be null
  float* out = nullptr;  // {out_rows, d_output}; null: not needed
  RowJob job;            // run() fills in keep_states and out
};

class SlicePipeline {
 public:
  SlicePipeline(std::shared_ptr<Context> context, const PolicyDims& dims, const RowKernels& kernels,
                const PolicyTuning& tuning);
  ~SlicePipeline();

  // Returns when every output and every next state is written; throws only when none of the work still runs.
  // The slices start after the event `after`, which the caller has recorded. chained: each slice starts from
  // the state that the previous one leaves.
  void run(const std::vector<Slice>& slices, bool chained, CUevent after);

 private:
  struct Lane;
  void enqueue(Lane& lane, const Slice& slice, const Lane* previous, CUevent after);
  void stage(Lane& lane, const Slice& slice);
  void finish(Lane& lane);

  std::shared_ptr<Context> context_;
  const PolicyDims& dims_;
  const RowKernels& kernels_;
  const PolicyTuning tuning_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace exphil::cuda
