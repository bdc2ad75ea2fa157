// Slices of work over many rows in flight: each has a lane, with a stream and memory of its own. The
// library's threads copy frames into page-locked memory and earlier answers out of it; the calling thread
// sends what is copied and launches it, and waits. Used by cuda/policy/slices.cpp, which makes the slices of
// a call; one call at a time, with the context current.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/device/context.hpp"
#include "cuda/policy/group_memory.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/states_ahead.hpp"
#include "cuda/policy/tuning.hpp"

namespace exphil::cuda {

struct Slice {
  const float* obs = nullptr;             // {job.rows, d_input}
  const std::int64_t* rows = nullptr;     // of obs and of out, those of a batch; null: the first job.rows
  const float* const* windows = nullptr;  // or instead, for each sequence, {job.seq, d_input}
  // Or instead, for each sequence, where what is known of its frames is on the device, and the others, which
  // are job.kept->fresh.
  const policy::KeptRing* rings = nullptr;
  const float* const* fresh = nullptr;
  // One for each row of a batch, of which SliceHooks::find gives them, or for each sequence; may be null.
  const policy::StatePlace* states = nullptr;
  float* out = nullptr;        // {out_rows, d_output}; null: not needed
  CUdeviceptr pinned_out = 0;  // the same, where the device writes it itself: it is in pinned memory
  bool graphs = false;         // launched as a graph
  RowJob job;                  // launch() fills in keep_states, kept->rings and out
};

struct BatchStates {
  const policy::StatePlace* places;  // of all rows of the batch
  // Of a group: its products are those of the states where `known`, and will be of those after them.
  CudaGroupMemory* group = nullptr;
  bool known = false;
};

// What the calling thread does besides. All may be empty.
struct SliceHooks {
  std::function<BatchStates()> find;  // of a batch: its states, which are looked for while others copy frames
  // Of a batch: whether these are its states, when all are launched. Where they are not, nothing is answered.
  std::function<bool()> is_right;
  std::function<void(const Slice&)> before;  // before a slice's states are read, which it may find meanwhile
  std::function<void()> meanwhile;           // after that, when no states are read any more
};

// The event after which a call's work starts. Called once, when the call has its states.
using StartEvent = std::function<CUevent()>;

class SliceLanes {
 public:
  SliceLanes(Context& context, const PolicyDims& dims, const RowKernels& kernels, const PolicyTuning& tuning,
             StreamPriority priority);
  ~SliceLanes();

  std::int64_t count() const { return static_cast<std::int64_t>(lanes_.size()); }
  // From now on so many slices of so many rows allocate nothing. Throws out_of_memory.
  void reserve(std::int64_t slices, std::int64_t rows);
  // After reserve(): nor where they are of sequences, of which a slice has at least so many.
  void reserve_sequences(std::int64_t slices, int least);
  // Computes all of them after an event, and returns when every output and every next state is written:
  // whether all frames were finite, and the states right. Throws only when none of their work still runs.
  // chained: each starts from the state that the one before leaves. most: lanes that they have.
  bool run(std::vector<Slice>& slices, bool chained, const StartEvent& start, const SliceHooks& hooks = {},
           std::int64_t most = INT64_MAX);

 private:
  struct Lane;
  struct Piece;
  void begin(Lane& lane, const Slice& slice, bool is_first, std::vector<Piece>* pieces);
  void set_table(Lane& lane, CUevent after);
  void add_answers(Lane& lane, std::vector<Piece>* pieces);
  static void add_pieces(Lane& lane, int part, std::pair<std::int64_t, std::int64_t> units,
                         std::int64_t unit_bytes, std::vector<Piece>* pieces);
  // prepare() is called once, in this thread, before anything is sent.
  template <class Prepare>
  void copy(const std::vector<Piece>& pieces, Prepare prepare);
  void drop() noexcept;  // what is copied or computed
  void copy_frames(const Piece& piece);
  void copy_answers(const Piece& piece);
  void send(Lane& lane);
  void upload(Lane& lane, std::size_t from, std::size_t bytes);
  void launch(Lane& lane);
  void wait(Lane& lane);
  void finish(Lane& lane);
  std::int64_t row_bytes() const;                     // of a frame on the device
  static std::int64_t length_of(const Slice& slice);  // rows of a unit of its frames
  static std::int64_t sent_rows(const Slice& slice);  // of its frames
  // Bytes of the table behind them, and where it is. It is sent with them, but for one that is read while the
  // rows before it are written.
  static std::int64_t table_bytes(const Slice& slice);
  std::int64_t table_at(const Lane& lane, const Slice& slice) const;
  bool is_table_apart(const Slice& slice) const;

  Context& context_;
  const PolicyDims& dims_;
  const RowKernels& kernels_;
  const PolicyTuning tuning_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<bool> finite_{true};    // the frames that were copied for the call
  std::optional<StatesAhead> ahead_;  // null: policies of this kind have nothing of it
};

}  // namespace exphil::cuda
