// See model_rows.hpp.
#include "cuda/policy/rows.hpp"

#include <algorithm>
#include <cctype>

#include "core/error.hpp"
#include "cuda/jit/launch.hpp"

namespace exphil::cuda {
namespace {

// kernels/policy/product.cuh
struct ProductArguments {
  CUdeviceptr x, weights, bias, residual, scale, out;
  long long x_stride, residual_stride, out_stride;
  long long rows;
  float epsilon;
};

// kernels/policy/rows.cu
struct RowArguments {
  CUdeviceptr xz, u, projection, y;
  CUdeviceptr conv, conv_bias, dt_proj, dt_bias, a, d;
  CUdeviceptr states;
  long long state_offset;
  long long rows;
  int seq;
  int sequences;
  int last_only;
};

unsigned blocks(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace

KernelSpec product_kernel(const PolicyDims& dims, const std::string& product, const std::string& shape) {
  std::string name = "PRODUCT_" + product;
  for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  std::vector<std::string> defines = dims.defines();
  defines.push_back(name);
  return {"policy/product.cu", "policy_" + product + "_" + shape, defines};
}

KernelSpec rows_kernel(const PolicyDims& dims, const std::string& entry) {
  return {"policy/rows.cu", entry, dims.defines()};
}

std::vector<KernelSpec> row_modules(const PolicyDims& dims) {
  std::vector<KernelSpec> modules;
  for (const char* product : {"input", "in_proj", "x_proj", "out_proj", "head"}) {
    modules.push_back(product_kernel(dims, product, "many"));
  }
  modules.push_back(rows_kernel(dims, "policy_row_scales"));
  return modules;
}

void RowBuffers::reserve(Context& context, const PolicyDims& dims, std::int64_t rows) {
  if (rows <= capacity) return;
  const auto floats = [rows](std::int64_t per_row) { return static_cast<std::size_t>(rows * per_row) * 4; };
  DevicePool& device = context.device_pool();
  PinnedPool& pinned = context.pinned_pool();
  capacity = 0;  // until all of it is there
  const std::size_t in_bytes = floats(dims.input) + static_cast<std::size_t>(rows) * sizeof(CUdeviceptr);
  host_in = pinned.allocate(in_bytes);
  host_out = pinned.allocate(floats(dims.output));
  in = device.allocate(in_bytes);
  out = device.allocate(floats(dims.output));
  h = device.allocate(floats(dims.model));
  last_h = device.allocate(floats(dims.model));
  xz = device.allocate(floats(2 * dims.inner));
  u = device.allocate(floats(dims.inner));
  projection = device.allocate(floats(dims.projection));
  y = device.allocate(floats(dims.inner));
  scale = device.allocate(floats(1));
  capacity = rows;
}

RowKernels::RowKernels(Context& context, const PolicyDims& dims, const PolicyTuning& tuning,
                       const core::PolicyWeights& weights)
    : context_(context), dims_(dims), few_limit_(tuning.few_limit) {
  const std::vector<float> host = pack_rows(weights, dims, &layout_);
  weights_ = context.device_pool().allocate(host.size() * sizeof(float));
  context.check(driver().cuMemcpyHtoD(weights_.address(), host.data(), host.size() * sizeof(float)),
                "cuMemcpyHtoD");
  input_ = product("input", dims.input, dims.model);
  in_proj_ = product("in_proj", dims.model, 2 * dims.inner);
  x_proj_ = product("x_proj", dims.inner, dims.projection);
  out_proj_ = product("out_proj", dims.inner, dims.model);
  head_ = product("head", dims.model, dims.output);
  const auto rows = [&](const char* entry) { return context.kernels().get(rows_kernel(dims, entry)); };
  row_scales_ = rows("policy_row_scales");
  convolve_batch_ = rows("policy_convolve_batch");
  convolve_time_ = rows("policy_convolve_time");
  advance_batch_ = rows("policy_advance_batch");
  advance_time_ = rows("policy_advance_time");
}

RowKernels::Product RowKernels::product(const std::string& name, int k, int outputs) const {
  Product made;
  made.k = k;
  made.outputs = outputs;
  made.few = context_.kernels().get(product_kernel(dims_, name, "few"));
  made.many = context_.kernels().get(product_kernel(dims_, name, "many"));
  return made;
}

void RowKernels::multiply(CUstream stream, const Product& product, CUdeviceptr x, std::int64_t x_stride,
                          CUdeviceptr weights, CUdeviceptr bias, CUdeviceptr residual,
                          std::int64_t residual_stride, CUdeviceptr scale, CUdeviceptr out,
                          std::int64_t out_stride, std::int64_t rows) const {
  const ProductArguments arguments{x,
                                   weights,
                                   bias,
                                   residual,
                                   scale,
                                   out,
                                   x_stride,
                                   residual_stride,
                                   out_stride,
                                   rows,
                                   dims_.config.norm_epsilon};
  const int tile = few_rows(product.k);
  if (rows <= few_limit_ && tile > 0) {
    launch(context_, product.few, {blocks(product.outputs, 32), blocks(rows, tile)}, {256}, 0, stream,
           arguments);
    return;
  }
  if (scale != 0) scale_rows(stream, x, scale, rows);
  launch(context_, product.many, {blocks(product.outputs, 64), blocks(rows, 128)}, {128}, 0, stream,
         arguments);
}

void RowKernels::scale_rows(CUstream stream, CUdeviceptr h, CUdeviceptr scale, std::int64_t rows) const {
  launch(context_, row_scales_, {blocks(rows, 8)}, {256}, 0, stream, h, scale, static_cast<long long>(rows),
         dims_.config.norm_epsilon);
}

void RowKernels::layer(CUstream stream, const RowBuffers& b, const RowJob& job, int index) const {
  const RowLayout::Layer& w = layout_.layers[static_cast<std::size_t>(index)];
  const int model = dims_.model, inner = dims_.inner;
  const bool last_only = job.last_only && index == dims_.layers - 1;
  multiply(stream, in_proj_, b.h.address(), model, at(w.in_proj), at(w.in_bias), 0, 0, b.scale.address(),
           b.xz.address(), 2 * inner, job.rows);
  RowArguments arguments{};
  arguments.xz = b.xz.address();
  arguments.u = b.u.address();
  arguments.projection = b.projection.address();
  arguments.y = b.y.address();
  arguments.conv = at(w.conv), arguments.conv_bias = at(w.conv_bias);
  arguments.dt_proj = at(w.dt_proj), arguments.dt_bias = at(w.dt_bias);
  arguments.a = at(w.a), arguments.d = at(w.d);
  const auto table = static_cast<CUdeviceptr>(job.rows * dims_.input) * 4;
  arguments.states = job.keep_states ? b.in.address() + table : 0;
  arguments.state_offset = index * dims_.layer_state_floats();
  arguments.rows = job.rows;
  arguments.seq = job.seq;
  arguments.sequences = job.sequences;
  arguments.last_only = last_only ? 1 : 0;
  launch(context_, job.batch ? convolve_batch_ : convolve_time_, {blocks(job.rows * inner, 256)}, {256}, 0,
         stream, arguments);
  multiply(stream, x_proj_, b.u.address(), inner, at(w.x_proj), 0, 0, 0, 0, b.projection.address(),
           dims_.projection, job.rows);
  const int channels = std::min(32, 128 / dims_.lanes);  // kAdvanceChannels
  const auto threads = static_cast<unsigned>(channels * dims_.lanes);
  const unsigned channel_tiles = blocks(inner, channels);
  if (job.batch) {
    const unsigned groups = std::min(blocks(job.rows, dims_.lanes), 65535u);
    launch(context_, advance_batch_, {channel_tiles, groups}, {threads}, 0, stream, arguments);
  } else {
    launch(context_, advance_time_, {channel_tiles, static_cast<unsigned>(job.sequences)}, {threads}, 0,
           stream, arguments);
  }
  const std::int64_t stride = last_only ? std::int64_t{job.seq} * model : model;
  const CUdeviceptr residual = b.h.address() + static_cast<CUdeviceptr>(last_only ? stride - model : 0) * 4;
  multiply(stream, out_proj_, b.y.address(), inner, at(w.out_proj), at(w.out_bias), residual, stride, 0,
           last_only ? b.last_h.address() : b.h.address(), model, last_only ? job.sequences : job.rows);
}

void RowKernels::enqueue(CUstream stream, const RowBuffers& b, const RowJob& job) const {
  multiply(stream, input_, b.in.address(), dims_.input, at(layout_.input), at(layout_.input_bias), 0, 0, 0,
           b.h.address(), dims_.model, job.rows);
  for (int i = 0; i < dims_.layers; ++i) layer(stream, b, job, i);
  const bool last_only = job.last_only && dims_.layers > 0;
  multiply(stream, head_, last_only ? b.last_h.address() : b.h.address(), dims_.model, at(layout_.head),
           at(layout_.head_bias), 0, 0, b.scale.address(), job.out, dims_.output,
           last_only ? job.sequences : job.rows);
}

}  // namespace exphil::cuda
