#include "cuda/policy/rows.hpp"

#include <algorithm>
#include <cctype>

#include "core/error.hpp"
#include "cuda/device/slow_call.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/policy/arguments.cuh"

namespace exphil::cuda {
namespace {

constexpr unsigned kMostGridY = 65535;

void use(policy::ProductArguments& arguments, const policy::ProductMatrix& matrix) {
  static_cast<policy::ProductMatrix&>(arguments) = matrix;
}

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

std::vector<std::string> row_products(const PolicyDims& dims) {
  std::vector<std::string> names = {"input", "in_proj", "x_proj", "out_proj"};
  if (dims.d_hidden > 0) {
    names.insert(names.end(), {"hidden", "head_out"});
  } else {
    names.emplace_back("head");
  }
  return names;
}

std::vector<KernelSpec> row_modules(const PolicyDims& dims) {
  std::vector<KernelSpec> modules;
  for (const std::string& product : row_products(dims)) {
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
  capacity = 0;  // until all allocations have succeeded
  const std::size_t in_bytes =
      floats(dims.input()) + static_cast<std::size_t>(rows) * sizeof(policy::StatePlace);
  host_in = pinned.allocate(in_bytes);
  host_out = pinned.allocate(floats(dims.output()));
  in = device.allocate(in_bytes);
  out = device.allocate(floats(dims.output()));
  h = device.allocate(floats(dims.model()));
  last_h = device.allocate(floats(dims.model()));
  xz = device.allocate(floats(2 * dims.inner()));
  u = device.allocate(floats(dims.inner()));
  projection = device.allocate(floats(dims.projection()));
  y = device.allocate(floats(dims.inner()));
  scale = device.allocate(floats(dims.centres() ? 2 : 1));
  if (dims.d_hidden > 0) hidden = device.allocate(floats(dims.hidden()));
  if (dims.form.mean_dt) active_dt = device.allocate(floats(dims.inner() + 1));
  capacity = rows;
}

RowKernels::RowKernels(Context& context, const PolicyDims& dims, const PolicyTuning& tuning,
                       const core::PolicyWeights& weights)
    : context_(context), dims_(dims), few_limit_(tuning.few_limit) {
  PackedRows packed = pack_rows(weights, dims);
  layout_ = std::move(packed.layout);
  weights_ = context.device_pool().allocate(packed.bytes.size());
  {
    const SlowCall slow;
    context.check(driver().cuMemcpyHtoD(weights_.address(), packed.bytes.data(), packed.bytes.size()),
                  "cuMemcpyHtoD");
  }
  input_ = product("input", dims.input(), dims.model());
  in_proj_ = product("in_proj", dims.model(), 2 * dims.inner());
  x_proj_ = product("x_proj", dims.inner(), dims.projection());
  out_proj_ = product("out_proj", dims.inner(), dims.model());
  if (dims.d_hidden > 0) hidden_ = product("hidden", dims.model(), dims.hidden());
  head_ = product(dims.d_hidden > 0 ? "head_out" : "head", dims.head_depth(), dims.output());
  const auto rows = [&](const char* entry) { return context.kernels().get(rows_kernel(dims, entry)); };
  row_scales_ = rows("policy_row_scales");
  convolve_batch_ = rows("policy_convolve_batch");
  convolve_time_ = rows("policy_convolve_time");
  if (dims.form.mean_dt) activate_dt_ = rows("policy_activate_dt");
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

policy::ProductMatrix RowKernels::weights_of(const RowLayout::Matrix& matrix) const {
  return {weight(matrix.weights), weight(matrix.bias), weight(matrix.scale), weight(matrix.sums)};
}

void RowKernels::multiply(CUstream stream, const Product& product, policy::ProductArguments p) const {
  p.epsilon = dims_.epsilon();
  const int tile = policy::few_rows(product.k);
  if (p.rows <= few_limit_ && tile > 0) {
    launch(context_, product.few, {blocks(product.outputs, policy::kFewColumns), blocks(p.rows, tile)},
           {policy::kFewThreads}, 0, stream, p);
    return;
  }
  if (p.scale != nullptr) {
    launch(context_, row_scales_, {blocks(p.rows, policy::kScaledRows)}, {policy::kRowThreads}, 0, stream,
           p.x, const_cast<float*>(p.scale), p.rows, p.epsilon);
  }
  launch(context_, product.many,
         {blocks(product.outputs, policy::kManyColumns), blocks(p.rows, policy::kManyRows)},
         {policy::kManyThreads}, 0, stream, p);
}

policy::RowArguments RowKernels::row_arguments(const RowBuffers& b, const RowJob& job, int index) const {
  const RowLayout::Layer& w = layout_.layers[static_cast<std::size_t>(index)];
  policy::RowArguments row{};
  row.xz = b.xz.as<float>(), row.u = b.u.as<float>();
  row.projection = b.projection.as<float>(), row.y = b.y.as<float>();
  row.conv = weight(w.conv), row.conv_bias = weight(w.conv_bias);
  row.dt_proj = weight(w.dt_proj), row.dt_bias = weight(w.dt_bias);
  row.a = weight(w.a), row.d = weight(w.d);
  row.active_dt = b.active_dt.as<float>();
  row.decays_input = job.decays_input ? 1 : 0;
  if (job.keep_states)
    row.states = reinterpret_cast<policy::StatePlace*>(b.in.as<float>() + job.rows * dims_.input());
  row.state_offset = std::int64_t{index} * dims_.layer_state_floats();
  row.rows = job.rows;
  row.seq = job.seq;
  row.sequences = job.sequences;
  row.last_only = last_only(job, index) ? 1 : 0;
  return row;
}

policy::WindowArguments RowKernels::window_weights() const {
  const std::vector<RowLayout::Layer>& layers = layout_.layers;
  const RowLayout::Layer& w = layers.front();
  const policy::Network& n = dims_.network();
  policy::WindowArguments p{};
  policy::ProductMatrix* to = p.weights;
  *to++ = weights_of(layout_.input);
  const policy::ProductMatrix short_one = {weight(w.dt_proj), weight(w.dt_bias),
                                           weight(w.dt_bias) + dims_.inner(), nullptr};
  const policy::ProductMatrix products[] = {weights_of(w.in_proj), weights_of(w.x_proj), short_one,
                                            weights_of(w.out_proj)};
  int product = 0;
  for (int i = 0; i < n.layer.count; ++i) {
    policy::ProductMatrix& made = *to++;
    const policy::Kind kind = n.layer.phases[i].kind;
    if (kind == policy::Kind::product) made = products[product++];
    if (kind == policy::Kind::convolution) made.weights = weight(w.conv), made.bias = weight(w.conv_bias);
    if (kind == policy::Kind::scan) made.weights = weight(w.a), made.bias = weight(w.d);
  }
  if (n.output.count > 1) *to++ = weights_of(layout_.hidden);
  *to = weights_of(layout_.head);
  if (layers.size() > 1) p.layer_stride = layers[1].in_proj.weights.at - w.in_proj.weights.at;
  return p;
}

// Only the last layer may skip rows: the rows of earlier layers feed the state.
bool RowKernels::last_only(const RowJob& job, int index) const {
  return job.last_only && index == dims_.layers() - 1;
}

void RowKernels::layer(CUstream stream, const RowBuffers& b, const RowJob& job, int index) const {
  const RowLayout::Layer& w = layout_.layers[static_cast<std::size_t>(index)];
  const int model = dims_.model(), inner = dims_.inner();
  const policy::RowArguments row = row_arguments(b, job, index);

  policy::ProductArguments p{};
  p.rows = job.rows;
  p.x = b.h.as<float>(), p.x_stride = model;
  use(p, weights_of(w.in_proj));
  p.scale = b.scale.as<float>();
  p.out = b.xz.as<float>(), p.out_stride = 2 * inner;
  multiply(stream, in_proj_, p);
  launch(context_, job.batch ? convolve_batch_ : convolve_time_,
         {blocks(job.rows * inner, policy::kRowThreads)}, {policy::kRowThreads}, 0, stream, row);

  p = {};
  p.rows = job.rows;
  p.x = b.u.as<float>(), p.x_stride = inner;
  use(p, weights_of(w.x_proj));
  p.out = b.projection.as<float>(), p.out_stride = dims_.projection();
  multiply(stream, x_proj_, p);
  if (activate_dt_ != nullptr) {
    launch(context_, activate_dt_, {blocks(job.rows, policy::kDtRows)}, {policy::kRowThreads}, 0, stream,
           row);
  }
  advance(stream, job, row);

  p = {};
  p.x = b.y.as<float>(), p.x_stride = inner;
  use(p, weights_of(w.out_proj));
  p.residual = b.h.as<float>(), p.residual_stride = model;
  p.rows = job.rows;
  p.out = b.h.as<float>(), p.out_stride = model;
  if (last_only(job, index)) {
    p.rows = job.sequences;
    p.residual_stride = std::int64_t{job.seq} * model;
    p.residual += p.residual_stride - model;
    p.out = b.last_h.as<float>();
  }
  multiply(stream, out_proj_, p);
}

void RowKernels::advance(CUstream stream, const RowJob& job, const policy::RowArguments& row) const {
  const unsigned channel_tiles = blocks(dims_.inner(), policy::advance_channels(dims_));
  const Dim3 block{static_cast<unsigned>(policy::advance_threads(dims_))};
  if (job.batch) {
    const unsigned groups = std::min(blocks(job.rows, dims_.lanes()), kMostGridY);
    launch(context_, advance_batch_, {channel_tiles, groups}, block, 0, stream, row);
  } else {
    launch(context_, advance_time_, {channel_tiles, static_cast<unsigned>(job.sequences)}, block, 0, stream,
           row);
  }
}

void RowKernels::enqueue(CUstream stream, const RowBuffers& b, const RowJob& job) const {
  policy::ProductArguments p{};
  p.rows = job.rows;
  p.x = b.in.as<float>(), p.x_stride = dims_.input();
  use(p, weights_of(layout_.input));
  p.out = b.h.as<float>(), p.out_stride = dims_.model();
  multiply(stream, input_, p);
  for (int i = 0; i < dims_.layers(); ++i) layer(stream, b, job, i);
  head(stream, b, job);
}

void RowKernels::head(CUstream stream, const RowBuffers& b, const RowJob& job) const {
  const bool few = job.last_only && dims_.layers() > 0;
  policy::ProductArguments p{};
  p.rows = few ? job.sequences : job.rows;
  p.x = few ? b.last_h.as<float>() : b.h.as<float>(), p.x_stride = dims_.model();
  if (dims_.form.final_norm) p.scale = b.scale.as<float>();
  if (dims_.d_hidden > 0) {
    use(p, weights_of(layout_.hidden));
    p.out = b.hidden.as<float>(), p.out_stride = dims_.hidden();
    multiply(stream, hidden_, p);
    p.x = b.hidden.as<float>(), p.x_stride = dims_.hidden();
    p.scale = nullptr;
  }
  use(p, weights_of(layout_.head));
  p.out = job.out, p.out_stride = dims_.output();
  multiply(stream, head_, p);
}

}  // namespace exphil::cuda
