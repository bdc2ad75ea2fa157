// A policy over many rows: a batch of agents that each advance by a frame, or frames of sequences in order.
// One kernel after another on one stream, a launch for each phase of the network
// (kernels/policy/product.cu, convolution.cu, mean.cu, scan.cu, cell.cu); of a cell that recalls its state,
// one walk over all frames (cell_walk.hpp, cell_walk_wide.hpp) or, where that does not fit the device, two
// for each frame. All calls share RowKernels; each slice of work in flight has a RowBuffers.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/cell_walk.hpp"
#include "cuda/policy/cell_walk_wide.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/frame_launch.hpp"
#include "cuda/policy/layer_pipeline.hpp"
#include "cuda/policy/pack.hpp"
#include "cuda/policy/tuning.hpp"
#include "kernels/policy/arguments.cuh"
#include "kernels/policy/cell_batch_layout.cuh"
#include "kernels/policy/kept_arguments.cuh"

namespace exphil::cuda {

// What a job has behind its rows of obs, for each row at the most.
inline constexpr std::size_t kRowTableBytes = std::max(sizeof(policy::StatePlace), sizeof(policy::KeptRing));

// Memory for `capacity` rows: inputs, outputs, and activations between the layers.
struct RowBuffers {
  void reserve(Context& context, const PolicyDims& dims,
               std::int64_t rows);  // grows; no work on it may be in flight

  std::int64_t capacity = 0;
  std::uint64_t version = 0;       // another one after each growth
  PinnedBuffer host_in, host_out;  // rows of obs then the table, kRowTableBytes of each; rows of outputs
  DeviceBuffer in, out;
  std::vector<DeviceBuffer> arrays;  // by the vector that owns it (policy::RowPlace)
  DeviceBuffer last_hidden, scale;   // hidden of last frames; the factors of a norm
  LayerWords words;                  // of layers side by side; grows with the jobs that need it
};

// Frames of sequences whose first values, KeptValues, are in rings. Those of the `fresh` ones are not: they
// are made of these frames, and put there first.
struct KeptFrames {
  const policy::KeptRing* rings = nullptr;  // device memory {sequences}; null: of one sequence, `ring`
  policy::KeptRing ring{};
  std::int64_t fresh = 0;
  const float* frames = nullptr;  // device memory {fresh, size of the frame}; null: RowBuffers::in has them
};

// Values of a frame that depend on it alone, so that a session may keep them: the hidden ones before the
// first layer, where something but the layer's leading product reads them, and those of that product. 0: not
// kept; neither is where the input has phases that other frames have a part in.
struct KeptValues {
  explicit KeptValues(const policy::Network& network);

  int hidden = 0, lead = 0;
  int all() const { return hidden + lead; }
};

struct RowJob {
  std::int64_t rows = 0;  // batch: agents; otherwise sequences * seq
  bool batch = false;     // each row has its own state
  int seq = 1, sequences = 0;
  bool last_only = false;          // outputs of each sequence's last frame alone
  bool keep_states = false;        // the table in RowBuffers::in holds a state for each sequence (or row)
  bool decays_input = false;       // PolicyDims::decays of the sequences
  bool shares = false;             // other jobs are computed at the same time
  const float* ahead = nullptr;    // of the job's rows, what enqueue_ahead() writes; null: it was not called
  const float* frames = nullptr;   // device memory {rows, size of the frame}; null: RowBuffers::in has them
  std::optional<KeptFrames> kept;  // of sequences, whose frames need not be there otherwise
  float* out = nullptr;            // device memory {rows or sequences, d_output}
};

// A kernel of a phase; all that a policy has; and one of every module that RowKernels uses, for
// KernelCache::prepare. A short product has none: it is computed in the launch of the next phase.
KernelSpec row_kernel(const PolicyDims& dims, policy::Phase phase, const std::string& entry);
std::vector<KernelSpec> row_kernels(const PolicyDims& dims);
KernelSpec kept_kernel(const char* entry);  // of policy/kept.cu
std::vector<KernelSpec> row_modules(const DeviceProperties& device, const PolicyDims& dims,
                                    const PolicyTuning& tuning);

class RowKernels {
 public:
  RowKernels(Context& context, const PolicyDims& dims, const PolicyTuning& tuning,
             const core::PolicyWeights& weights);

  std::size_t resident_bytes() const { return weights_.bytes(); }
  // The weights' addresses for policy_window; everything else is zero.
  policy::WindowArguments window_weights() const;
  // A new agent's state, on the device; 0: zeros.
  CUdeviceptr initial_state() const {
    return layout_.initial.count == 0 ? 0 : weights_.address() + static_cast<std::size_t>(layout_.initial.at);
  }
  // Enqueues every kernel of a job in order on `stream`. buffers.in holds obs {capacity, size of the frame},
  // then the table.
  void enqueue(CUstream stream, RowBuffers& buffers, const RowJob& job) const;
  // From now on jobs of at least so many sequences allocate nothing in these buffers. Throws out_of_memory.
  void reserve_sequences(CUstream stream, RowBuffers& buffers, int least) const;
  // About how many kernels a batch's job launches.
  int launches() const;
  // A batch's frame in one launch, or up to the phases of the output; null: there is none.
  const FrameLaunch* frame() const { return frame_ ? &*frame_ : nullptr; }
  // frames: all but the weights and what the network has. ahead: of all rows, what enqueue_ahead() writes,
  // where values_ahead() is not 0; the launch makes it where it is not known.
  void enqueue_frame(CUstream stream, policy::AwaitedFrames frames, float* ahead, bool known) const;
  // Where a job has its hidden values, {rows, hidden}; and the phases of the output, of those.
  float* hidden(const RowBuffers& buffers) const { return array(buffers, dims_.network().hidden); }
  void enqueue_output(CUstream stream, RowBuffers& buffers, const RowJob& job) const;
  // Of the cell whose state its products read, where the layer has one: sequences that its walk takes at a
  // time while so many jobs are computed side by side; 0: each frame is launches of its own.
  static constexpr int kWalksSideBySide = 2;
  std::optional<int> walked_at_once() const;
  // Whether a walk reads the ring of a job with one: otherwise its rows are copied side by side first.
  bool walks_rings() const;
  // What jobs with KeptFrames have of a frame; none: there are no such jobs.
  KeptValues kept_values() const { return kept_; }
  // Values of a row of a batch that can be found before its frame is there, and the launch that finds them.
  // states: of the rows, for the device to read. None: a batch has none.
  std::int64_t values_ahead() const;
  void enqueue_ahead(CUstream stream, const policy::StatePlace* states, std::int64_t rows, float* to) const;

 private:
  class Walk;  // rows_walk.cpp
  // Those of one phase: by their places in the list of its entries (rows.cpp).
  using Kernels = std::vector<CUfunction>;
  using BlockKernels = std::vector<Kernels>;

  // The array of the vector that owns it (policy::RowPlace), but for the outputs.
  float* array(const RowBuffers& buffers, int owner) const {
    if (owner == dims_.network().frame) return buffers.in.as<float>();  // which may be hidden
    return buffers.arrays[static_cast<std::size_t>(owner)].as<float>();
  }
  BlockKernels kernels_of(const policy::Block& block) const;
  std::int64_t layer_stride() const;  // bytes between the weights of two layers
  // Dynamic shared memory of a kernel of warpgroups.
  std::size_t shared_of(const policy::Phase& phase, const std::string& entry) const;
  const float* address(const RowLayout::Part& part) const { return part.in(weights_.as<void>()); }
  // enqueue_frame() of a network of cells, and of one of scans.
  void enqueue_cells(CUstream stream, const policy::AwaitedFrames& frames, float* ahead, bool known) const;
  void enqueue_scans(CUstream stream, const policy::AwaitedFrames& frames) const;
  policy::ProductMatrix matrix(const RowLayout::Phase& product) const;
  policy::ShortMatrix short_matrix(const RowLayout::Phase& product) const;

  Context& context_;
  const PolicyDims& dims_;
  const PolicyTuning tuning_;
  const bool warpgroups_;  // the device has them
  RowLayout layout_;
  DeviceBuffer weights_;
  BlockKernels input_, layer_, output_;
  const KeptValues kept_;
  CUfunction keep_ = nullptr, gather_ = nullptr;  // of policy/kept.cu
  policy::CellProducts cell_products_;            // of the layer, where a batch's frame of it is one launch
  std::optional<FrameLaunch> frame_;
  // By cell; those of many sequences.
  std::array<std::optional<CellWalk>, policy::kMostPhases> walks_;
  std::array<std::optional<CellWalkWide>, policy::kMostPhases> wide_walks_;
  std::optional<LayerPipeline> pipeline_;
};

}  // namespace exphil::cuda
