// Work over many rows: batches of agents, sequences and windows, each as slices of bounded memory that
// overlap (slice_lanes.hpp). Used by cuda/policy/policy.cpp; calls run one after another.
//
// Every call starts after the work that the policy's stream had when it was called, and when it had its
// states (SliceHooks::find). It returns when every output and every next state is written, and throws only
// when none of its work still runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/policy/policy.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/frame_lane.hpp"
#include "cuda/policy/ordered_stream.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/slice_lanes.hpp"
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

// A sequence of one agent: {seq, d_input}, and its outputs or the last one of them.
struct LongSequence {
  policy::StatePlace state;
  const float* frames = nullptr;
  std::int64_t seq = 0;
  float* out = nullptr;
  bool last_only = false;
  bool decays_input = false;  // PolicyDims::decays
};

// The frames of a batch, {count, d_input}, and where its answers go, {count, d_output}; or of larger ones the
// rows whose numbers `rows` has.
struct BatchRows {
  const float* obs;
  float* out;
  const std::int64_t* rows = nullptr;
};

class SlicePipeline {
 public:
  SlicePipeline(std::shared_ptr<Context> context, const PolicyDims& dims, const RowKernels& kernels,
                const PolicyTuning& tuning, OrderedStream& stream,
                StreamPriority priority = StreamPriority::low);

  // The right to call batch(), which one call has at a time.
  using Turn = std::unique_lock<std::mutex>;
  Turn turn() { return Turn(mutex_); }
  Turn try_turn() { return Turn(mutex_, std::try_to_lock); }  // without it where another call is under way
  // One frame of each of `count` agents, whose states hooks.find gives; grouped: they are of a group, with
  // what it needs of them. Returns whether all frames are finite.
  bool batch(std::int64_t count, const BatchRows& rows, bool grouped, const SliceHooks& hooks, Turn turn);
  // From now on a batch of at most so many agents allocates nothing. Waits for no other call where that is so
  // already. Throws out_of_memory.
  void reserve_batch(std::int64_t count);
  std::int64_t reserved() const { return reserved_; }  // agents
  // The same of up to `count` windows of at most `seq` frames each, of which `least` are answered together.
  // has_rings: fewer do not come here.
  void reserve_windows(std::int64_t count, std::int64_t seq, std::int64_t least, bool has_rings);
  void sequence(const LongSequence& sequence);
  // The last output of each of `count` windows {seq, d_input} from a zero state; seq is at most most_rows().
  void windows(const float* windows, std::int64_t count, std::int64_t seq, float* out);
  // Those of several agents, of any lengths, whose rings are CudaRings. False, and nothing done, where one is
  // longer than most_rows().
  bool answer(core::AgentWindow* windows, std::int64_t count, float* out);
  std::int64_t most_rows() const { return tuning_.slice_rows; }
  // Whether a batch of so many is one launch. known: what it needs of their states is there.
  bool is_one_launch(std::int64_t count, bool known) const;

 private:
  std::int64_t batch_rows(std::int64_t count) const;  // of a slice of a batch of so many agents
  // The most rows of a slice of windows of at most `seq` frames, and lanes that have such slices.
  std::int64_t window_rows(std::int64_t seq) const;
  std::int64_t window_lanes() const;
  // Slices of windows of one length, but for where their frames and their answers are.
  void append_windows(std::int64_t count, std::int64_t seq, std::int64_t most_rows,
                      std::vector<Slice>* slices) const;
  // Slices whose sequences are `rows` of the windows: all of their frames are copied to the device, or those
  // that no ring keeps there.
  void run_copied(const core::AgentWindow* windows, std::vector<Slice>& slices);
  void run_kept(const core::AgentWindow* windows, std::vector<Slice>& slices);
  // chained: each slice starts from the state that the previous one leaves.
  bool run(std::vector<Slice>& slices, bool chained, Turn turn, const SliceHooks& hooks = {},
           std::int64_t lanes = INT64_MAX);
  // Calls work(start), on its turn. start() gives an event: the work that the policy's stream has then is
  // over.
  template <class Work>
  bool run_after_others(const Turn& turn, Work work);

  std::shared_ptr<Context> context_;
  const PolicyDims& dims_;
  const RowKernels& kernels_;
  const PolicyTuning tuning_;
  OrderedStream& stream_;
  std::mutex mutex_;
  std::atomic<std::int64_t> reserved_{0}, reserved_rows_{0};  // agents of a batch, rows of windows
  SliceLanes lanes_;
  std::optional<FrameLane> frame_;
};

}  // namespace exphil::cuda
