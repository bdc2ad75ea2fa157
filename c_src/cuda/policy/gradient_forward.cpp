// The forward half of cuda/policy/gradient_pass.hpp.
#include "cuda/policy/gradient_order.hpp"
#include "cuda/policy/gradient_pass.hpp"

namespace exphil::cuda {

using core::Span;

GradientPass::GradientPass(Context& context, GradientStreams& streams, const GradientKernels& kernels,
                           const GradientValues& values, CUdeviceptr weights, CUdeviceptr gradient, bool adds,
                           GradientMemory& memory)
    : context_(context),
      streams_(streams),
      stream_(streams.main()),
      kernels_(kernels),
      values_(values),
      n_(values.network()),
      weights_(weights),
      gradient_(gradient),
      m_(memory),
      blocks_(blocks_of(n_)) {
  for (PartialSums& sums : m_.sums) sums.set_adds(adds);
  later_parts_.set_adds(true);
}

void GradientPass::enter(std::size_t block) {
  block_ = block, phases_ = blocks_[block];
}

Matrix GradientPass::weight(const core::Product& p) const {
  const core::Weight& all = n_.weight(p.weight);
  const Matrix& aligned = m_.weights[static_cast<std::size_t>(p.weight)];
  const Matrix rows = aligned.rows > 0 ? aligned : Matrix(weight(p.weight), all.rows, all.columns);
  return rows.rows_of(p.first_row, p.out.size);
}

const VectorRows& GradientPass::found(core::VectorId id) const {
  return m_.blocks[block_].vectors[static_cast<std::size_t>(id)];
}

const VectorRows& GradientPass::left(core::VectorId id) const {
  return id == n_.hidden ? m_.blocks[block_].hidden : found(id);
}

const VectorRows& GradientPass::gradients(core::VectorId id) const {
  const bool shared = id == n_.frame || id == n_.hidden || id == n_.outs;
  return (shared ? m_.gradients : m_.blocks[block_].gradients)[static_cast<std::size_t>(id)];
}

void GradientPass::copy(Matrix from, Matrix to) const {
  context_.check(driver().cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to.data),
                                            reinterpret_cast<CUdeviceptr>(from.data),
                                            static_cast<std::size_t>(from.size()) * sizeof(float), stream_),
                 "cuMemcpyDtoDAsync");
}

std::vector<Matrix> GradientPass::inputs(const core::Product& p) const {
  if (aligned(p.in.vector).rows > 0) return {aligned(p.in.vector)};
  return rows_of(found(p.in.vector), p.in);
}

const Matrix& GradientPass::aligned(core::VectorId id) const {
  return m_.blocks[block_].aligned[static_cast<std::size_t>(id)];
}

void GradientPass::align_inputs(const core::Product& p) {
  const Matrix& to = aligned(p.in.vector);
  if (to.rows == 0) return;
  if (written_.insert(to.data).second) {
    kernels_.copy(stream_, dense_rows_of(found(p.in.vector), p.in), to);
  }
  await_weights();
}

// Beside the phases before the first product that reads them.
void GradientPass::align_weights() {
  CUstream beside = nullptr;
  for (std::size_t id = 0; id < m_.weights.size(); ++id) {
    const Matrix& to = m_.weights[id];
    if (to.rows == 0) continue;
    if (!aligns_) beside = streams_.fork();
    aligns_ = true;
    kernels_.copy(beside, {weight(static_cast<core::WeightId>(id)), to.rows, to.columns}, to);
  }
  if (aligns_) streams_.name(0);
}

void GradientPass::await_weights() {
  if (aligns_) streams_.join(0);
  aligns_ = false;
}

void GradientPass::forward(bool outs) {
  written_.clear();
  align_weights();
  std::vector<std::vector<std::size_t>> launches;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (i + 1 == blocks_.size() && !outs && !m_.shape.gradient) break;
    enter(i);
    if (i < 2 || i + 1 == blocks_.size()) launches = forward_launches(*phases_);  // layers have the same
    for (const std::vector<std::size_t>& launch : launches) forward_launch(launch, outs);
  }
  await_weights();
}

// The gradient does not need outs.
void GradientPass::forward_launch(const std::vector<std::size_t>& phases, bool outs) {
  Products products;
  for (const std::size_t i : phases) {
    const core::Phase& phase = (*phases_)[i];
    const auto* const product = std::get_if<core::Product>(&phase);
    if (product != nullptr) align_inputs(*product);  // the gradient of outs needs it too
    if (!outs && core::writes(phase).vector == n_.outs) continue;
    phase_ = i;
    if (product != nullptr) {
      add_forward(*product, products);
    } else {
      std::visit([this](const auto& p) { forward(p); }, phase);
    }
  }
  kernels_.run(stream_, products);
}

void GradientPass::add_forward(const core::Product& p, Products& launch) const {
  if (is_walked(*phases_, p)) return;
  const std::vector<Matrix> x = inputs(p);
  const float* const bias = weight(p.bias);
  std::int64_t row = 0;
  for (const Matrix& y : rows_of(left(p.out.vector), p.out)) {
    policy::ProductJob& job = launch.forward(x, weight(p).rows_of(row, y.columns),
                                             bias == nullptr ? bias : bias + p.first_row + row, y);
    if (p.relu) job.after = policy::kRelu;
    if (p.adds) {
      const Matrix before = rows_of(found(p.out.vector), {p.out.vector, p.out.first + row, y.columns})[0];
      job.after = policy::kAdd, job.other = before.data, job.other_row = before.stride;
    }
    row += y.columns;
  }
}

void GradientPass::forward(const core::Copy& p) {
  const Matrix from = dense_rows_of(found(p.in.vector), p.in), to = dense_rows_of(left(p.out.vector), p.out);
  if (!p.adds) return copy(from, to);
  copy(dense_rows_of(found(p.out.vector), p.out), to);
  PartialSums now;
  now.set_adds(true);
  now.add(from.data, to.data, 1, to.size());
  kernels_.add_parts(stream_, now.sums());
}

policy::NormArguments GradientPass::norm_arguments(const core::Norm& p) const {
  policy::NormArguments a{};
  a.x = in(p.in);
  a.weight = weight(p.weight);
  a.bias = p.kind == core::NormKind::layer ? weight(p.bias) : nullptr;
  a.rows = m_.shape.rows(), a.width = static_cast<int>(p.in.size / p.parts);
  a.parts = static_cast<int>(p.parts), a.weights = static_cast<int>(p.parts / p.repeats);
  a.epsilon = p.epsilon;
  return a;
}

void GradientPass::forward(const core::Norm& p) {
  policy::NormArguments a = norm_arguments(p);
  const Matrix& to = aligned(p.out.vector);
  if (to.rows > 0 && p.parts == 1 && products_alone_read(n_, *phases_, p.out)) {
    written_.insert(to.data);
    a.out = to.data, a.out_row = to.stride;
  } else {
    a.out = out(p.out), a.out_row = a.width;
  }
  kernels_.norm(stream_, a);
}

std::vector<policy::ConvolveArguments> GradientPass::convolution(const core::Convolution& p) const {
  const auto state = static_cast<std::size_t>(p.state);
  const std::int64_t history = p.taps - 1;
  std::vector<policy::ConvolveArguments> all;
  for (const ColumnRun& run :
       common_columns(rows_of(found(p.in.vector), p.in), rows_of(left(p.out.vector), p.out))) {
    policy::ConvolveArguments a{};
    a.x = run.from.data, a.x_row = run.from.stride, a.s = run.to.data, a.s_row = run.to.stride;
    a.weight = weight(p.weight) + run.first * p.taps, a.bias = advanced(weight(p.bias), run.first);
    a.history = advanced(m_.states[state], run.first * history);
    a.final_history = advanced(m_.final_states[state], run.first * history);
    a.d_history = advanced(m_.d_states[state], run.first * history);
    a.sequences = m_.shape.sequences, a.seq = m_.shape.seq;
    a.inner = static_cast<int>(run.from.columns), a.channels = static_cast<int>(p.in.size);
    all.push_back(a);
  }
  return all;
}

void GradientPass::forward(const core::Convolution& p) {
  for (const policy::ConvolveArguments& run : convolution(p)) kernels_.convolve(stream_, p.taps, run);
}

}  // namespace exphil::cuda
