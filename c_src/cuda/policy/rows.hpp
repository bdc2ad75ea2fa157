// A policy over many rows: a batch of agents that each advance by a frame, or frames of sequences in order.
// One kernel after another on one stream (kernels/policy/product.cu, policy/rows.cu). All calls share
// RowKernels; each slice of work in flight has a RowBuffers.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/pack.hpp"
#include "cuda/policy/tuning.hpp"
#include "kernels/policy/arguments.cuh"

namespace exphil::cuda {

// Memory for `capacity` rows: inputs, outputs, and activations between the layers.
struct RowBuffers {
  void reserve(Context& context, const PolicyDims& dims,
               std::int64_t rows);  // grows; no work on it may be in flight

  std::int64_t capacity = 0;
  PinnedBuffer host_in, host_out;  // rows of obs then the state table; rows of outputs
  DeviceBuffer in, out;
  DeviceBuffer h, last_h, xz, u, projection, y, scale;
  DeviceBuffer hidden, active_dt;  // where the policy has two-layer heads, or a mean of dt
};

struct RowJob {
  std::int64_t rows = 0;  // batch: agents; otherwise sequences * seq
  bool batch = false;     // each row has its own state
  int seq = 1, sequences = 0;
  bool last_only = false;     // outputs of each sequence's last frame alone
  bool keep_states = false;   // the table in RowBuffers::in holds a state for each sequence (or row)
  bool decays_input = false;  // PolicyDims::decays of the sequences
  float* out = nullptr;       // device memory {rows or sequences, d_output}
};

// policy/product.cu's kernel for one product ("in_proj") in one shape ("few" or "many"), and a kernel of
// policy/rows.cu.
KernelSpec product_kernel(const PolicyDims& dims, const std::string& product, const std::string& shape);
KernelSpec rows_kernel(const PolicyDims& dims, const std::string& entry);
// The names of the products that a policy has, and one kernel of every module that RowKernels uses, for
// KernelCache::prepare.
std::vector<std::string> row_products(const PolicyDims& dims);
std::vector<KernelSpec> row_modules(const PolicyDims& dims);

class RowKernels {
 public:
  RowKernels(Context& context, const PolicyDims& dims, const PolicyTuning& tuning,
             const core::PolicyWeights& weights);

  std::size_t resident_bytes() const { return weights_.bytes(); }
  // The weights' addresses for policy_window; everything else is zero.
  policy::WindowArguments window_weights() const;
  // Enqueues every kernel of a job in order on `stream`. buffers.in holds obs {capacity, dims.input()}, then
  // the table.
  void enqueue(CUstream stream, const RowBuffers& buffers, const RowJob& job) const;

 private:
  struct Product {
    CUfunction few = nullptr, many = nullptr;
    int k = 0, outputs = 0;
  };
  Product product(const std::string& name, int k, int outputs) const;
  void multiply(CUstream stream, const Product& product, policy::ProductArguments arguments) const;
  policy::RowArguments row_arguments(const RowBuffers& buffers, const RowJob& job, int index) const;
  bool last_only(const RowJob& job, int index) const;
  void layer(CUstream stream, const RowBuffers& buffers, const RowJob& job, int index) const;
  void advance(CUstream stream, const RowJob& job, const policy::RowArguments& arguments) const;
  void head(CUstream stream, const RowBuffers& buffers, const RowJob& job) const;
  const float* weight(const RowLayout::Part& part) const { return part.in(weights_.as<void>()); }
  policy::ProductMatrix weights_of(const RowLayout::Matrix& matrix) const;
  const void* weight(const policy::MatrixPart& part) const { return part.in(weights_.as<void>()); }

  Context& context_;
  const PolicyDims& dims_;
  const std::int64_t few_limit_;
  RowLayout layout_;
  DeviceBuffer weights_;
  Product input_, in_proj_, x_proj_, out_proj_, hidden_, head_;
  CUfunction row_scales_, convolve_batch_, convolve_time_, activate_dt_ = nullptr, advance_batch_,
                                                           advance_time_;
};

}  // namespace exphil::cuda
