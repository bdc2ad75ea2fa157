#include "cuda/policy/layer_pipeline.hpp"

#include <algorithm>
#include <limits>

#include "cuda/jit/launch.hpp"

namespace exphil::cuda {

int pipelined_product(const PolicyDims& dims, const PolicyTuning& tuning) {
  const policy::Network& n = dims.network();
  if (tuning.pipeline == 0 || n.layer.count == 0 || n.in_rows_alone()) return policy::kNoPhase;
  const policy::Phase last = n.layer.phases[n.layer.count - 1];
  if (last.kind != policy::Kind::cell) return policy::kNoPhase;
  return policy::pipelined_product(n, n.cells[last.index]);
}

KernelSpec product_follow_kernel(const PolicyDims& dims, int product) {
  const policy::Network& n = dims.network();
  std::vector<std::string> defines = dims.defines();
  defines.push_back(define("PRODUCT", product));
  defines.push_back(define("UNITS", n.size(n.products[product].out[0].vector)));
  return {"policy/product_follow.cu", "policy_product_follow", defines};
}

unsigned LayerWords::reserve(Context& context, CUstream stream, std::int64_t rows, std::int64_t values,
                             int layers) {
  const auto numbers = static_cast<unsigned>(layers);
  if (rows > rows_ || values != values_ || next_ > std::numeric_limits<unsigned>::max() - numbers) {
    rows_ = 0;  // until all of this has succeeded
    memory_ = context.device_pool().allocate(
        static_cast<std::size_t>(std::min(layers - 1, 2) * rows * values) * sizeof(Word));
    context.check(driver().cuMemsetD8Async(memory_.address(), 0, memory_.bytes(), stream), "cuMemsetD8Async");
    rows_ = rows, values_ = values, next_ = 1;  // no layer has number 0
  }
  const unsigned first = next_;
  next_ += numbers;
  return first;
}

std::optional<LayerPipeline> LayerPipeline::find(Context& context, const PolicyDims& dims,
                                                 const PolicyTuning& tuning) {
  const policy::Network& n = dims.network();
  const int product = pipelined_product(dims, tuning);
  if (product == policy::kNoPhase) return std::nullopt;
  const int cell = n.layer.phases[n.layer.count - 1].index;
  const std::optional<CellWalk> walk = CellWalk::find(context, dims, tuning, cell, true);
  if (!walk) return std::nullopt;
  LayerPipeline made(*walk);
  made.product_ = product;
  made.units_ = n.size(n.cells[cell].x[0]), made.columns_ = n.rows(n.products[product]);
  made.threads_ = policy::few_threads(n.size(n.hidden)), made.sharing_ = tuning.pipeline;
  made.function_ = context.kernels().get(product_follow_kernel(dims, product));
  return made;
}

std::optional<CellWalk::Split> LayerPipeline::split(int sequences) const {
  // The walks of two layers at least run at the same time, and the products between them.
  constexpr int kSideBySide = 4;
  const CellWalk::Split alone = walk_.split(sequences), split = walk_.split(sequences, kSideBySide);
  const bool fit = split.together == alone.together && split.clusters * split.together >= sequences;
  return fit ? std::optional(split) : std::nullopt;
}

void LayerPipeline::enqueue_product(Context& context, CUstream stream, policy::FollowArguments arguments,
                                    const CellWalk::Split& split) const {
  arguments.together = split.together;
  const Dim3 grid{static_cast<unsigned>(policy::divide_up(columns_, policy::kFewColumns)),
                  static_cast<unsigned>(split.clusters), static_cast<unsigned>(sharing_)};
  launch_overlapped(context, function_, grid, {static_cast<unsigned>(threads_)}, 0, stream, arguments);
}

}  // namespace exphil::cuda
