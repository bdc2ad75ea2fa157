// Launches the kernels of a policy's gradient: kernels/policy/product_gradient.cu, gradient.cu and
// gradient_scan.cu. Used by cuda/policy/gradient_pass.cpp. Any thread, with the context current.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/policy/network.hpp"
#include "cuda/device/context.hpp"
#include "cuda/divide_up.hpp"
#include "cuda/jit/kernel_spec.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/policy/gradient_arguments.cuh"

namespace exphil::cuda {

// A row-major matrix on the device, dense but for part() and aligned().
struct Matrix {
  float* data = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;

  Matrix() = default;
  Matrix(float* at, std::int64_t r, std::int64_t c) : data(at), rows(r), columns(c), stride(c) {}
  // Rows that begin at multiples of 16 bytes.
  static Matrix aligned(float* at, std::int64_t r, std::int64_t c) {
    Matrix made(at, r, c);
    made.stride = (c + 3) / 4 * 4;
    return made;
  }
  Matrix rows_of(std::int64_t first, std::int64_t count) const {
    Matrix made(data + first * stride, count, columns);
    made.stride = stride;
    return made;
  }
  // Columns [first, first + count) of it.
  Matrix part(std::int64_t first, std::int64_t count) const {
    Matrix made(data + first, rows, count);
    made.stride = stride;
    return made;
  }
  std::int64_t size() const { return rows * columns; }
  bool dense() const { return stride == columns; }
};

// Products for one launch. x and y have a row for each frame; a weight is {outs, depth}.
class Products {
 public:
  // y = x weight^T + bias. x: its pieces, at most kMostPieces. bias: {outs}, or null.
  policy::ProductJob& forward(const std::vector<Matrix>& x, Matrix weight, const float* bias, Matrix y);
  // dx = the sum of dy weight over what through() names, at least one and at most kMostPieces.
  policy::ProductJob& back(Matrix dx);
  static void through(policy::ProductJob& job, Matrix dy, Matrix weight);
  // Sums over parts of the rows: weight_parts {parts, outs, depth} of dy^T x, bias_parts {parts, outs} of dy;
  // the latter may be null. depth: from one row of a part to the next.
  void weight(Matrix dy, Matrix x, std::int64_t depth, float* weight_parts, float* bias_parts);

  const std::vector<policy::ProductJob>& jobs() const { return jobs_; }
  // Whether a job takes products with some of these rows, or writes some of them.
  bool reads(const Matrix& rows) const;
  bool writes(const Matrix& rows) const;
  void clear() { jobs_.clear(); }

 private:
  policy::ProductJob& add(policy::ProductOf product, std::int64_t rows, std::int64_t columns);
  std::vector<policy::ProductJob> jobs_;
};

// Parts of a sum over this many rows, and rows of each but the last. They depend on the number of rows alone.
std::int64_t part_rows(std::int64_t rows);
std::int64_t parts_of_rows(std::int64_t rows);

// Segments of time of policy_gradient_convolve_back, and blocks of policy_gradient_norm_back.
std::int64_t convolve_segments(std::int64_t seq);
std::int64_t norm_blocks(std::int64_t rows);
// Tiles of a head of policy/gradient_heads.cu, and floats of its states that the backward kernel keeps.
std::int64_t head_tiles(const core::HeadRecurrence& heads);
std::int64_t head_state_floats(const core::HeadRecurrence& heads, std::int64_t sequences, std::int64_t seq);
// Tiles of channels of policy/gradient_scan.cu.
std::int64_t scan_tiles(std::int64_t inner, std::int64_t state);

// The grid of so many blocks. Throws limit_exceeded where a launch cannot have them.
Dim3 gradient_grid(std::int64_t blocks);

// What computes products: kernels/policy/product_gradient.cu, product_gradient_tensor.cu or
// product_gradient_wide.cu.
enum class ProductUnit { plain, tensor_cores, warpgroups };
ProductUnit best_product_unit(const DeviceProperties& device);
// strands: of warpgroups, for one tile.
KernelSpec gradient_product_spec(ProductUnit unit, int strands = 1);
KernelSpec gradient_scan_spec(const char* entry);
KernelSpec gradient_kernel_spec(std::int64_t taps, const char* entry);
// ranks: kLinearRule or kDeltaRule where there are none (kernels/policy/gradient_heads.cuh).
KernelSpec gradient_heads_spec(std::int64_t keys, std::int64_t ranks, const char* entry);
KernelSpec gradient_gate_spec(const char* entry);
KernelSpec gradient_trapezoid_spec(const char* entry);
// Every kernel of a policy whose convolutions have these taps, but for those of heads; those of heads.
std::vector<KernelSpec> gradient_kernels(std::int64_t taps);
std::vector<KernelSpec> gradient_head_kernels(std::int64_t keys, std::int64_t ranks);
std::vector<KernelSpec> gradient_trapezoid_kernels();

// What a launch is part of.
enum class Pass { forward, back };

class GradientKernels {
 public:
  // Compiles and loads what the network's phases need. Products are on the device's best unit, or on another
  // one that it has.
  GradientKernels(Context& context, const core::Network& network,
                  std::optional<ProductUnit> unit = std::nullopt);

  // All of one sort.
  void run(CUstream stream, const Products& products) const;
  void copy(CUstream stream, const Matrix& from, const Matrix& to) const;
  void norm(CUstream stream, const policy::NormArguments& arguments) const;
  void norm_back(CUstream stream, const policy::NormArguments& arguments) const;
  // convolve() also keeps the history where there is room for it.
  void convolve(CUstream stream, std::int64_t taps, const policy::ConvolveArguments& arguments) const;
  void convolve_back(CUstream stream, std::int64_t taps, const policy::ConvolveArguments& arguments) const;
  // `from`, `factor`, `to`, `parts`, `count` and `adds` of each; those without parts are left out.
  void add_parts(CUstream stream, const std::vector<policy::PartSum>& sums) const;
  void scan(CUstream stream, const policy::GradientScanArguments& arguments) const;
  void scan_back(CUstream stream, const policy::GradientScanArguments& arguments) const;
  void activate(CUstream stream, const policy::ActivateArguments& arguments) const;
  void activate_back(CUstream stream, const policy::ActivateArguments& arguments) const;
  void heads(CUstream stream, const core::HeadRecurrence& phase,
             const policy::GradientHeadsArguments& arguments) const;
  void heads_back(CUstream stream, const core::HeadRecurrence& phase,
                  const policy::GradientHeadsArguments& arguments) const;
  void gate(CUstream stream, const policy::GradientGateArguments& arguments) const;
  void gate_back(CUstream stream, const policy::GradientGateArguments& arguments) const;
  void sigmoid(CUstream stream, const policy::GradientGateArguments& arguments, bool back) const;
  void means(CUstream stream, const policy::GradientGateArguments& arguments, bool back) const;
  // A kernel of policy/gradient_trapezoid.cu, with so many threads; of either pass: no trunk has gated cells
  // beside it.
  template <class Arguments>
  void trapezoid(CUstream stream, const char* entry, std::int64_t threads, const Arguments& arguments) const {
    enqueue(Pass::forward, stream, trapezoid_.at(entry), divide_up(threads, policy::kGradientThreads),
            arguments);
  }

 private:
  struct Convolution {
    CUfunction forward, history, back;
  };

  struct Pair {
    CUfunction forward = nullptr, back = nullptr;
  };
  void run_wide(CUstream stream, policy::ProductJobs& jobs) const;
  // A kernel that takes its turn (kernels/common/launches.cuh).
  template <class Arguments>
  void enqueue(Pass pass, CUstream stream, CUfunction kernel, std::int64_t blocks, const Arguments& arguments,
               int threads = policy::kGradientThreads, std::size_t shared_bytes = 0) const {
    const Begin begin = pass == Pass::forward || overlaps_back_ ? Begin::beside : Begin::after;
    launch(begin, context_, kernel, gradient_grid(blocks), {static_cast<unsigned>(threads)}, shared_bytes,
           stream, arguments);
  }
  void load_heads(const core::Network& network);
  Pair gates(const std::string& entry) const;  // of policy/gradient_gate.cu
  void load_trapezoid();

  Context& context_;
  // Whether launches of the backward pass overlap. Not beside gated cells, whose gradient takes 2 to 7%
  // longer where they do.
  bool overlaps_back_;
  std::map<std::pair<std::int64_t, std::int64_t>, Pair> heads_;  // by their keys and ranks
  Pair gate_, sigmoid_, means_, norm_of_parts_;                  // where a phase needs them
  std::map<std::string, CUfunction> trapezoid_;                  // likewise
  // Products: one of the two. By warpgroups a block has a tile of its own, or its strands share a deep one.
  CUfunction product_ = nullptr;
  struct {
    CUfunction own = nullptr, shared = nullptr;
  } wide_;
  // The forward pass of a network with angles is not on tensor cores: angles add up what they are given.
  CUfunction plain_forward_ = nullptr;
  CUfunction norm_, norm_back_, copy_, sums_;
  std::map<std::int64_t, Convolution> convolutions_;  // by their taps
  CUfunction scan_, scan_back_, activate_, activate_back_;
};

}  // namespace exphil::cuda
