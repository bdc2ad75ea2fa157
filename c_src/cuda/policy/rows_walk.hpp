// The launches of a job over many rows: a walk over the phases of the network, with a function for each kind
// of phase. Used by cuda/policy/rows_walk.cpp and rows_heads.cpp; one object per job.
#pragma once

#include <algorithm>
#include <array>

#include "cuda/jit/launch.hpp"
#include "cuda/policy/rows.hpp"
#include "kernels/policy/row_layout.cuh"

namespace exphil::cuda {

inline unsigned grid_blocks(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}
constexpr unsigned kMostGridY = 65535;

// The number of a phase that the block has.
inline std::size_t number_of(const policy::Block& block, policy::Kind kind, int index) {
  int at = 0;
  while (block.phases[at].kind != kind || block.phases[at].index != index) ++at;
  return static_cast<std::size_t>(at);
}

class RowKernels::Walk {
 public:
  Walk(const RowKernels& kernels, CUstream stream, RowBuffers& buffers, const RowJob& job)
      : k_(kernels), n_(kernels.dims_.network()), stream_(stream), b_(buffers), job_(job) {
    if (k_.pipeline_ && !job.batch && job.seq > 1) side_by_side_ = k_.pipeline_->split(job.sequences);
    if (!side_by_side_) return;
    pipeline_ = &*k_.pipeline_;
    number_ = buffers.words.reserve(k_.context_, stream, buffers.capacity, pipeline_->values(), n_.layers);
  }

  void run() {
    if (reads_ring()) {
      fill_ring(*job_.kept);
    } else if (job_.kept) {
      gather_kept(*job_.kept);
    } else {
      block(n_.input, k_.layout_.input, k_.input_, n_.input.count);
    }
    for (layer_ = 0; layer_ < n_.layers; ++layer_) {
      const bool last = job_.last_only && layer_ + 1 == n_.layers;
      block(n_.layer, k_.layout_.layers[static_cast<std::size_t>(layer_)], k_.layer_,
            last ? policy::first_of_last_rows(n_.layer) : n_.layer.count);
    }
    run_output();
  }
  // What is kept of frames: the input and the first layer's leading product, whose results go to `to` or,
  // where that is null, to their array.
  void run_lead(float* to) {
    block(n_.input, k_.layout_.input, k_.input_, n_.input.count);
    if (k_.kept_.lead == 0) return;
    lead_to_ = to;
    product(n_.products[n_.layer.phases[0].index], k_.layout_.layers.front().front(), k_.layer_.front(),
            job_.rows);
  }
  void run_output() {
    layer_ = n_.layers;
    block(n_.output, k_.layout_.output, k_.output_, job_.last_only ? 0 : n_.output.count);
  }

 private:
  using Kind = policy::Kind;
  using Phase = policy::Phase;
  using Weights = RowLayout::Block;

  // From phase `last_rows` on only the last row of each sequence is computed.
  void block(const policy::Block& block, const Weights& weights, const BlockKernels& kernels, int last_rows);

  // ---- vectors ----

  // The array of a vector. Of hidden there are two: neither the last rows nor cells in one launch with their
  // products overwrite what is read meanwhile.
  float* array(int vector) const {
    const int owner = policy::row_place(n_, vector).owner;
    if (owner == n_.outs) return job_.out;
    if (owner == n_.hidden && (has_last_rows(owner) || other_hidden_)) return b_.last_hidden.as<float>();
    return k_.array(b_, owner);
  }
  bool has_last_rows(int owner) const { return last_rows_[static_cast<std::size_t>(owner)]; }
  // The same of one that a phase writes.
  float* written(int vector) {
    last_rows_[static_cast<std::size_t>(policy::row_place(n_, vector).owner)] = last_;
    return array(vector);
  }

  struct View {
    const float* first;
    std::int64_t stride;
  };
  // The rows of a vector that a product reads.
  View read(int vector) const {
    const policy::RowPlace place = policy::row_place(n_, vector);
    if (place.owner == n_.frame && job_.frames != nullptr) return {job_.frames + place.at, place.stride};
    const float* const first = array(vector) + place.at;
    if (!last_ || has_last_rows(place.owner)) return {first, place.stride};
    return {first + std::int64_t{job_.seq - 1} * place.stride, std::int64_t{job_.seq} * place.stride};
  }

  policy::RowStates states() const {
    policy::RowStates rows{};
    if (job_.keep_states) {
      rows.states = reinterpret_cast<policy::StatePlace*>(b_.in.as<float>() + job_.rows * n_.size(n_.frame));
    }
    rows.state_offset = std::int64_t{layer_} * n_.layer_floats;
    rows.rows = job_.rows, rows.seq = job_.seq, rows.sequences = job_.sequences;
    return rows;
  }

  // ---- one function for each kind of phase ----

  void product(const policy::Product& product, const RowLayout::Phase& weights, const Kernels& kernels,
               std::int64_t rows);
  void multiply(const policy::Product& product, const Kernels& kernels, const policy::ProductArguments& p);
  void row_scales(const Kernels& kernels, const policy::ProductArguments& p);
  // By warpgroups: a block for each multiprocessor, of which several share the rows of the same columns.
  void wide(int k, int outputs, CUfunction kernel, const policy::ProductArguments& p);
  unsigned wide_blocks(unsigned columns) const {
    return std::max(1u, static_cast<unsigned>(k_.context_.properties().multiprocessors) / columns);
  }
  // And those that it shares its launch with; weights: of its phase, then of theirs.
  void convolutions(int first, const RowLayout::Phase* weights, const Kernels& kernels);
  // before: the weights of the phase before.
  void mean(int index, const RowLayout::Phase* before, const Kernels& kernels);
  void scan(int index, const RowLayout::Phase* before, const RowLayout::Phase& weights,
            const Kernels& kernels);
  void heads(const policy::Heads& p, const RowLayout::Phase& weights, const Kernels& kernels);
  void gate(const policy::Gate& p, const RowLayout::Phase& weights, const Kernels& kernels);
  // The states of a phase that takes a batch of agents as sequences of one frame.
  policy::RowStates sequences() const {
    policy::RowStates rows = states();
    if (job_.batch) rows.seq = 1, rows.sequences = static_cast<int>(job_.rows);
    return rows;
  }
  template <class Arguments>
  void for_each_thread(const Kernels& kernels, std::int64_t threads, const Arguments& arguments) {
    start(kernels[0], {grid_blocks(threads, policy::kRowThreads)}, policy::kRowThreads, arguments);
  }

  void angle(const policy::Angle& p, const Kernels& kernels);
  void rotation(const policy::Rotation& p, const RowLayout::Phase& weights, const Kernels& kernels);
  void delay(const policy::Delay& p, const Kernels& kernels);

  // A block of the network, for a cell whose launches are those of other phases too.
  struct Phases {
    const policy::Block& block;
    const Weights& weights;
    const BlockKernels& kernels;
    std::size_t number_of(int product) const { return cuda::number_of(block, Kind::product, product); }
  };

  void cell(int index, const Phases& phases, const Kernels& kernels);
  // Whether a layer's frame of a batch is one launch, with both products before the cell; and that launch.
  bool batched() const {
    const std::int64_t most =
        n_.on_tensor_cores() && k_.tuning_.cell_batch > 0 ? job_.rows : k_.tuning_.cell_batch;
    return job_.batch && job_.keep_states && job_.rows <= most && k_.cell_products_.x != policy::kNoPhase;
  }
  void batch(int cell, const Phases& phases, const Kernels& kernels);
  // The same by warpgroups.
  void batch_wide(int cell, const Phases& phases, policy::CellBatchArguments& arguments, CUfunction kernel);
  // Whether the phase's results are in the job's rings.
  bool is_led(int product) const {
    return layer_ == 0 && job_.kept && k_.kept_.lead > 0 && product == n_.layer.phases[0].index;
  }
  // Whether the first layer's walk reads the job's ring.
  bool reads_ring() const { return job_.kept && job_.kept->rings == nullptr && k_.walks_rings(); }
  // Makes what it reads of the fresh frames there.
  void fill_ring(const KeptFrames& kept);
  // Puts the fresh frames into the rings, and the values of all frames into their arrays.
  void gather_kept(const KeptFrames& kept);
  // All frames in one launch, with the product of the states. False where there is none for them.
  bool walked(int cell, const Phases& phases, const policy::CellArguments& arguments) const;
  // The product of what the layer before writes, in a pipeline of layers.
  void follow(const policy::Product& product, const RowLayout::Phase& weights) const;
  // What the states before a frame give the cell, a row for each sequence.
  void recurrent_products(int before, const Phases& phases, std::int64_t sequences);

  template <class Arguments>
  void start(CUfunction kernel, Dim3 grid, int threads, const Arguments& arguments, long long shared = 0) {
    const Dim3 block{static_cast<unsigned>(threads)};
    const auto bytes = static_cast<std::size_t>(shared);
    launch(first_ ? Begin::after : Begin::beside, k_.context_, kernel, grid, block, bytes, stream_,
           arguments);
    first_ = false;
  }

  const RowKernels& k_;
  const policy::Network& n_;
  const CUstream stream_;
  RowBuffers& b_;
  const RowJob& job_;
  std::optional<CellWalk::Split> side_by_side_;  // where the layers run so, and then:
  const LayerPipeline* pipeline_ = nullptr;
  unsigned number_ = 0;  // of the first layer
  int layer_ = 0;
  float* lead_to_ = nullptr;   // where the first layer's product goes, where that alone is computed
  bool first_ = true;          // nothing of this job was launched yet
  bool other_hidden_ = false;  // hidden is in last_hidden
  bool last_ = false;          // only the last row of each sequence is computed
  std::array<bool, policy::kMostVectors> last_rows_{};  // whether an array holds those alone
};

}  // namespace exphil::cuda
