#include "cuda/policy/gradient_kernels.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "cuda/divide_up.hpp"
#include "cuda/jit/kernel_compiler.hpp"
#include "cuda/jit/launch.hpp"

namespace exphil::cuda {

using policy::ProductJob;

namespace {

// Rows of a part of a weight's sum: enough for the cost of a tile, few enough for the device to be full.
constexpr std::int64_t kPartRows = 256, kMostParts = 16;
// Sums that are as long are shared by the strands of a block of warpgroups, and shorter ones where so few
// columns leave most multiprocessors idle.
constexpr std::int64_t kDeep = 512, kDeepOfFew = 128, kFewColumns = 2 * policy::kTileColumns;
// The first architecture whose tensor cores know tf32.
constexpr int kTf32 = 80;
// Beyond as many parts, a warp's lanes of one sum share each element.
constexpr std::int64_t kFewParts = 16;

}  // namespace

Dim3 gradient_grid(std::int64_t blocks) {
  return {grid_blocks(blocks, "frames", "the gradient of so many frames")};
}

std::int64_t part_rows(std::int64_t rows) {
  const std::int64_t least = divide_up(rows, kMostParts);
  return std::max(kPartRows, divide_up(least, policy::kTileDepth) * policy::kTileDepth);
}

std::int64_t parts_of_rows(std::int64_t rows) {
  return std::max<std::int64_t>(1, divide_up(rows, part_rows(rows)));
}

std::int64_t convolve_segments(std::int64_t seq) {
  return divide_up(seq, policy::kConvolveSteps);
}

std::int64_t norm_blocks(std::int64_t rows) {
  return divide_up(rows, policy::kNormRows);
}

std::int64_t scan_tiles(std::int64_t inner, std::int64_t state) {
  return divide_up(inner, policy::scan_channels(static_cast<int>(state)));
}

namespace {

void add_piece(ProductJob& job, const policy::ProductPiece& piece) {
  if (job.piece_count == policy::kMostPieces) {
    core::fail(core::ErrorKind::unsupported, "", "the gradient on a GPU needs that a product reads at most ",
               policy::kMostPieces, " parts of a vector that other phases read in parts");
  }
  job.pieces[job.piece_count++] = piece;
}

// Whether `floats` floats from `at` and the rows have floats in common, or lie between each other's.
bool overlap(const float* at, std::int64_t floats, const Matrix& rows) {
  return at < rows.data + rows.rows * rows.stride && rows.data < at + floats;
}

}  // namespace

ProductJob& Products::add(policy::ProductOf product, std::int64_t rows, std::int64_t columns) {
  ProductJob job{};
  job.product = product;
  job.rows = rows;
  job.columns = static_cast<int>(columns);
  job.parts = 1;
  job.part_depth = std::numeric_limits<std::int64_t>::max() / 2;
  jobs_.push_back(job);
  return jobs_.back();
}

ProductJob& Products::forward(const std::vector<Matrix>& x, Matrix weight, const float* bias, Matrix y) {
  ProductJob& job = add(policy::kForwardProduct, y.rows, weight.rows);
  std::int64_t column = 0;
  for (const Matrix& part : x) {
    add_piece(job, {part.data, weight.data + column, part.stride, weight.stride, part.columns});
    column += part.columns;
  }
  job.bias = bias;
  job.out = y.data, job.out_row = y.stride;
  return job;
}

ProductJob& Products::back(Matrix dx) {
  ProductJob& job = add(policy::kInputProduct, dx.rows, dx.columns);
  job.out = dx.data, job.out_row = dx.stride;
  return job;
}

void Products::through(ProductJob& job, Matrix dy, Matrix weight) {
  add_piece(job, {dy.data, weight.data, dy.stride, weight.stride, weight.rows});
}

void Products::weight(Matrix dy, Matrix x, std::int64_t depth, float* weight_parts, float* bias_parts) {
  ProductJob& job = add(policy::kWeightProduct, dy.columns, x.columns);
  add_piece(job, {dy.data, x.data, dy.stride, x.stride, dy.rows});
  job.parts = static_cast<int>(parts_of_rows(dy.rows));
  job.part_depth = part_rows(dy.rows);
  job.out = weight_parts, job.out_row = depth, job.out_part = dy.columns * depth;
  job.row_sums = bias_parts;
}

bool Products::reads(const Matrix& rows) const {
  for (const ProductJob& job : jobs_) {
    for (int i = 0; i < job.piece_count; ++i) {
      const policy::ProductPiece& p = job.pieces[i];
      // Of an operand along m its stride is that of k.
      const bool along_m = job.product == policy::kWeightProduct;
      const std::int64_t strides = along_m ? p.depth - 1 : job.rows - 1,
                         neighbours = along_m ? job.rows : p.depth;
      if (overlap(p.a, strides * p.a_stride + neighbours, rows)) return true;
    }
  }
  return false;
}

bool Products::writes(const Matrix& rows) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const ProductJob& job) {
    return overlap(job.out, (job.rows - 1) * job.out_row + job.columns, rows);
  });
}

ProductUnit best_product_unit(const DeviceProperties& device) {
  if (compiles_warpgroups(device.architecture())) return ProductUnit::warpgroups;
  return device.architecture() >= kTf32 ? ProductUnit::tensor_cores : ProductUnit::plain;
}

namespace {

std::size_t wide_product_bytes(int strands) {
  return static_cast<std::size_t>(policy::wide_product_shared(strands));
}

}  // namespace

KernelSpec gradient_product_spec(ProductUnit unit, int strands) {
  switch (unit) {
    case ProductUnit::warpgroups:
      return {
          "policy/product_gradient_wide.cu", "policy_gradient_product_wide", {define("STRANDS", strands)}};
    case ProductUnit::tensor_cores:
      return {"policy/product_gradient_tensor.cu", "policy_gradient_product_tensor", {}};
    case ProductUnit::plain:
      break;
  }
  return {"policy/product_gradient.cu", "policy_gradient_product", {}};
}

KernelSpec gradient_scan_spec(const char* entry) {
  return {"policy/gradient_scan.cu", entry, {}};
}

KernelSpec gradient_kernel_spec(std::int64_t taps, const char* entry) {
  return {"policy/gradient.cu", entry, {define("TAPS", taps)}};
}

std::vector<KernelSpec> gradient_kernels(std::int64_t taps) {
  std::vector<KernelSpec> all;
  for (const ProductUnit unit : {ProductUnit::plain, ProductUnit::tensor_cores, ProductUnit::warpgroups}) {
    all.push_back(gradient_product_spec(unit));
  }
  all.push_back(gradient_product_spec(ProductUnit::warpgroups, policy::kMostStrands));
  for (const char* entry : {"policy_gradient_scan", "policy_gradient_scan_back", "policy_gradient_activate",
                            "policy_gradient_activate_back"}) {
    all.push_back(gradient_scan_spec(entry));
  }
  for (const char* entry :
       {"policy_gradient_norm", "policy_gradient_norm_back", "policy_gradient_norm_of_parts",
        "policy_gradient_norm_of_parts_back", "policy_gradient_convolve", "policy_gradient_history",
        "policy_gradient_convolve_back", "policy_gradient_copy", "policy_gradient_sums"}) {
    all.push_back(gradient_kernel_spec(taps, entry));
  }
  return all;
}

namespace {

bool has_cells(const core::Network& network) {
  const std::vector<const core::Phase*> phases = core::phases_of(network);
  return std::any_of(phases.begin(), phases.end(), [](const core::Phase* phase) {
    return std::holds_alternative<core::GatedCell>(*phase);
  });
}

}  // namespace

GradientKernels::GradientKernels(Context& context, const core::Network& network,
                                 std::optional<ProductUnit> unit)
    : context_(context), overlaps_back_(!has_cells(network)) {
  for (const core::Phase* phase : core::phases_of(network)) {
    if (const auto* const p = std::get_if<core::Convolution>(phase)) convolutions_[p->taps] = {};
  }
  // The other kernels of the file are the same for any number of taps.
  const std::int64_t any_taps = convolutions_.empty() ? 1 : convolutions_.begin()->first;
  KernelCache& cache = context.kernels();
  const auto entry = [&](const char* name, std::int64_t taps) {
    return cache.get(gradient_kernel_spec(taps, name));
  };
  const auto own_scan = [&](const char* name) { return cache.get(gradient_scan_spec(name)); };
  const std::vector<const core::Phase*> phases = core::phases_of(network);
  const bool angles = std::any_of(phases.begin(), phases.end(), [](const core::Phase* phase) {
    return std::holds_alternative<core::Angle>(*phase);
  });
  const ProductUnit best = unit.value_or(best_product_unit(context.properties()));
  const KernelSpec plain = gradient_product_spec(ProductUnit::plain);
  std::vector<KernelSpec> products = {gradient_product_spec(best)};
  if (best == ProductUnit::warpgroups) products.push_back(gradient_product_spec(best, policy::kMostStrands));
  std::vector<KernelSpec> first = {gradient_kernel_spec(any_taps, "policy_gradient_norm"),
                                   gradient_scan_spec("policy_gradient_scan")};
  first.insert(first.end(), products.begin(), products.end());
  if (angles) first.push_back(plain);
  cache.prepare(first);
  if (angles) plain_forward_ = cache.get(plain);
  if (best == ProductUnit::warpgroups) {
    wide_ = {cache.get(products[0], wide_product_bytes(1)),
             cache.get(products[1], wide_product_bytes(policy::kMostStrands))};
  } else {
    product_ = cache.get(products[0]);
  }
  norm_ = entry("policy_gradient_norm", any_taps);
  norm_back_ = entry("policy_gradient_norm_back", any_taps);
  copy_ = entry("policy_gradient_copy", any_taps);
  sums_ = entry("policy_gradient_sums", any_taps);
  for (auto& [taps, convolution] : convolutions_) {
    convolution.forward = entry("policy_gradient_convolve", taps);
    convolution.history = entry("policy_gradient_history", taps);
    convolution.back = entry("policy_gradient_convolve_back", taps);
  }
  scan_ = own_scan("policy_gradient_scan");
  scan_back_ = own_scan("policy_gradient_scan_back");
  activate_ = own_scan("policy_gradient_activate");
  activate_back_ = own_scan("policy_gradient_activate_back");
  load_heads(network);
  for (const core::Phase* phase : core::phases_of(network)) {
    const auto* const norm = std::get_if<core::Norm>(phase);
    if (norm == nullptr || norm->parts == 1 || norm_of_parts_.forward != nullptr) continue;
    norm_of_parts_ = {entry("policy_gradient_norm_of_parts", any_taps),
                      entry("policy_gradient_norm_of_parts_back", any_taps)};
  }
}

namespace {

// Numbers the blocks of the jobs for tiles of this height. Returns how many there are.
std::int64_t cut_tiles(policy::ProductJobs* jobs, int tile_rows) {
  std::int64_t blocks = 0;
  jobs->tile_rows = tile_rows;
  for (int i = 0; i < jobs->count; ++i) {
    ProductJob& job = jobs->jobs[i];
    job.first_block = blocks;
    blocks += divide_up(job.rows, tile_rows) * divide_up(job.columns, policy::kTileColumns) * job.parts;
  }
  return blocks;
}

// Whether strands share the sums: by the longest one and by all columns, which the network decides. The parts
// of a sum for a weight are blocks of their own.
bool strands_share(const policy::ProductJobs& jobs) {
  std::int64_t deepest = 0, columns = 0;
  for (int i = 0; i < jobs.count; ++i) {
    const ProductJob& job = jobs.jobs[i];
    if (job.product == policy::kWeightProduct) return false;
    std::int64_t depth = 0;
    for (int p = 0; p < job.piece_count; ++p) depth += job.pieces[p].depth;
    deepest = std::max(deepest, depth), columns += job.columns;
  }
  return deepest >= (columns <= kFewColumns ? kDeepOfFew : kDeep);
}

// All jobs of a launch are of one sort.
Pass pass_of(const policy::ProductJobs& jobs) {
  return jobs.jobs[0].product == policy::kForwardProduct ? Pass::forward : Pass::back;
}

}  // namespace

void GradientKernels::run(CUstream stream, const Products& products) const {
  const std::vector<ProductJob>& all = products.jobs();
  for (std::size_t first = 0; first < all.size(); first += policy::kMostJobs) {
    policy::ProductJobs jobs{};
    for (std::size_t i = first; i < std::min(all.size(), first + policy::kMostJobs); ++i) {
      jobs.jobs[jobs.count++] = all[i];
    }
    const bool plain = plain_forward_ != nullptr && pass_of(jobs) == Pass::forward;
    if (!plain && wide_.own != nullptr) {
      run_wide(stream, jobs);
      continue;
    }
    std::int64_t blocks = cut_tiles(&jobs, policy::kTileRows);
    if (blocks < 2 * std::int64_t{context_.properties().multiprocessors}) {
      blocks = cut_tiles(&jobs, policy::kLowTileRows);
    }
    enqueue(pass_of(jobs), stream, plain ? plain_forward_ : product_, blocks, jobs, policy::kTileThreads);
  }
}

void GradientKernels::run_wide(CUstream stream, policy::ProductJobs& jobs) const {
  const bool shares = strands_share(jobs);
  const int strands = shares ? policy::kMostStrands : 1;
  const std::int64_t blocks = cut_tiles(&jobs, policy::kTileRows);
  enqueue(pass_of(jobs), stream, shares ? wide_.shared : wide_.own, blocks, jobs,
          strands * policy::kTileThreads, wide_product_bytes(strands));
}

void GradientKernels::copy(CUstream stream, const Matrix& from, const Matrix& to) const {
  const policy::CopyRowsArguments a{from.data, to.data,   from.stride,
                                    to.stride, from.rows, static_cast<int>(from.columns)};
  enqueue(Pass::forward, stream, copy_, divide_up(from.size(), policy::kGradientThreads), a);
}

void GradientKernels::norm(CUstream stream, const policy::NormArguments& a) const {
  const CUfunction kernel = a.parts > 1 ? norm_of_parts_.forward : norm_;
  enqueue(Pass::forward, stream, kernel, divide_up(a.rows * a.parts, policy::kGradientThreads / 32), a);
}

void GradientKernels::norm_back(CUstream stream, const policy::NormArguments& a) const {
  const CUfunction kernel = a.parts > 1 ? norm_of_parts_.back : norm_back_;
  enqueue(Pass::back, stream, kernel, norm_blocks(a.rows) * a.parts, a);
}

void GradientKernels::convolve(CUstream stream, std::int64_t taps, const policy::ConvolveArguments& a) const {
  const Convolution& kernels = convolutions_.at(taps);
  enqueue(Pass::forward, stream, kernels.forward,
          divide_up(a.sequences * a.seq * a.inner, policy::kGradientThreads), a);
  if (a.final_history == nullptr) return;
  enqueue(Pass::forward, stream, kernels.history, divide_up(a.sequences * a.inner, policy::kGradientThreads),
          a);
}

void GradientKernels::convolve_back(CUstream stream, std::int64_t taps,
                                    const policy::ConvolveArguments& a) const {
  const std::int64_t tiles = divide_up(a.inner, policy::kGradientThreads);
  enqueue(Pass::back, stream, convolutions_.at(taps).back, a.sequences * convolve_segments(a.seq) * tiles, a);
}

void GradientKernels::add_parts(CUstream stream, const std::vector<policy::PartSum>& all) const {
  for (std::size_t first = 0; first < all.size(); first += policy::kMostPartSums) {
    policy::PartSums sums{};
    std::int64_t blocks = 0;
    for (std::size_t i = first; i < std::min(all.size(), first + policy::kMostPartSums); ++i) {
      policy::PartSum& sum = sums.sums[sums.count++] = all[i];
      sum.strands = sum.parts > kFewParts ? policy::kMostPartStrands : 1;
      sum.first_block = blocks;
      blocks += divide_up(sum.count, policy::kGradientThreads / sum.strands);
    }
    if (blocks > 0) enqueue(Pass::back, stream, sums_, blocks, sums);
  }
}

namespace {

Dim3 scan_grid(const policy::GradientScanArguments& a) {
  return gradient_grid(a.sequences * scan_tiles(a.inner, a.state));
}

Dim3 activate_grid(const policy::ActivateArguments& a) {
  return gradient_grid(divide_up(a.rows, policy::kScanThreads / 32));
}

}  // namespace

void GradientKernels::scan(CUstream stream, const policy::GradientScanArguments& a) const {
  launch(context_, scan_, scan_grid(a), {policy::kScanThreads}, 0, stream, a);
}

void GradientKernels::scan_back(CUstream stream, const policy::GradientScanArguments& a) const {
  launch(context_, scan_back_, scan_grid(a), {policy::kScanThreads}, 0, stream, a);
}

void GradientKernels::activate(CUstream stream, const policy::ActivateArguments& a) const {
  launch(context_, activate_, activate_grid(a), {policy::kScanThreads}, 0, stream, a);
}

void GradientKernels::activate_back(CUstream stream, const policy::ActivateArguments& a) const {
  launch(context_, activate_back_, activate_grid(a), {policy::kScanThreads}, 0, stream, a);
}

}  // namespace exphil::cuda
