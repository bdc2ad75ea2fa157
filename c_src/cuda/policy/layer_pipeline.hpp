// The layers of a GRU or an LSTM side by side: frame t of a layer needs its frame t - 1 and frame t of the
// layer before, so n layers of T frames take T + n - 1 frames' time. Each layer is a launch that walks its
// frames (cell_walk.hpp), and between two layers another one makes the product of the outputs as they come
// (kernels/policy/product_follow.cu). They hand values over in words that carry a number
// (kernels/policy/tagged.cuh). A launch begins when all blocks of the one before it run, so none waits for
// what has no room on the device.
//
// LayerPipeline is made when a policy is loaded, and immutable afterwards. LayerWords belong to a RowBuffers.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "cuda/device/context.hpp"
#include "cuda/policy/cell_walk.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/tuning.hpp"
#include "kernels/policy/arguments.cuh"
#include "kernels/policy/cell_walk_layout.cuh"

namespace exphil::cuda {

// The kernel of the product between two layers; `product` is policy::pipelined_product of a cell.
KernelSpec product_follow_kernel(const PolicyDims& dims, int product);
// That product, where the layers of the network can be a pipeline; policy::kNoPhase.
int pipelined_product(const PolicyDims& dims, const PolicyTuning& tuning);

// What the launches between two layers exchange, for each row: the outputs of a layer, and the product of
// them. Of more than two layers twice, so that none overwrites what the product of the one before still
// reads.
class LayerWords {
 public:
  // Room for so many rows of layers with these numbers of values; no work on it may be in flight. Numbers of
  // layers that no word has: the first of them. Where it throws, the next call begins anew.
  unsigned reserve(Context& context, CUstream stream, std::int64_t rows, std::int64_t values, int layers);

  using Word = unsigned long long;
  // Of the step from layer - 1 to layer.
  Word* outputs(int layer) const { return memory_.as<Word>() + (layer - 1) % 2 * rows_ * values_; }
  Word* product(int layer, std::int64_t units) const { return outputs(layer) + rows_ * units; }

 private:
  DeviceBuffer memory_;
  std::int64_t rows_ = 0, values_ = 0;
  unsigned next_ = 1;  // number
};

class LayerPipeline {
 public:
  static std::optional<LayerPipeline> find(Context& context, const PolicyDims& dims,
                                           const PolicyTuning& tuning);

  int product() const { return product_; }
  const CellWalk& walk() const { return walk_; }
  int units() const { return units_; }
  int values() const { return units_ + columns_; }  // of a row
  // How a layer's walk shares so many sequences; nothing where they are not walked this way, because a layer
  // leaves no room for another one beside it. Then more sequences would share a cluster: 32 took 389 us side
  // by side, one layer after another 351.
  std::optional<CellWalk::Split> split(int sequences) const;
  // arguments: without `together`.
  void enqueue_product(Context& context, CUstream stream, policy::FollowArguments arguments,
                       const CellWalk::Split& split) const;

 private:
  explicit LayerPipeline(const CellWalk& walk) : walk_(walk) {}

  CellWalk walk_;
  CUfunction function_ = nullptr;
  int product_ = policy::kNoPhase, units_ = 0, columns_ = 0, threads_ = 0, sharing_ = 1;
};

}  // namespace exphil::cuda
