// The forward half of cuda/policy/gradient_pass.hpp.
#include "cuda/policy/gradient_pass.hpp"

#include "core/policy/heads.hpp"
#include "cuda/scan/forward.hpp"

namespace exphil::cuda {

using core::PolicyLayerWeights;
using core::ScanOperand;

GradientPass::GradientPass(Context& context, CUstream stream, const GradientKernels& kernels,
                           const GradientValues& values, CUdeviceptr weights, CUdeviceptr gradient, bool adds,
                           GradientMemory& memory)
    : context_(context),
      stream_(stream),
      kernels_(kernels),
      values_(values),
      w_(values.weights()),
      c_(w_.config),
      weights_(weights),
      gradient_(gradient),
      m_(memory) {
  m_.sums.set_adds(adds);
}

void GradientPass::copy(Matrix from, Matrix to) const {
  context_.check(driver().cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to.data),
                                            reinterpret_cast<CUdeviceptr>(from.data),
                                            static_cast<std::size_t>(from.rows * from.columns) * 4, stream_),
                 "cuMemcpyDtoDAsync");
}

Matrix GradientPass::weight(const Vector& vector, std::int64_t rows) const {
  const auto count = static_cast<std::int64_t>(vector.size());
  return {values_.in(weights_, vector), rows, rows == 0 ? 0 : count / rows};
}

void GradientPass::forward(bool outs) {
  begin();
  for (std::size_t i = 0; i < m_.layers.size(); ++i) forward_layer(i);
  if (c_.spec.final_norm) norm(w_.norm_f, w_.norm_f_bias, m_.hidden, m_.final);
  if (outs || (m_.shape.gradient && !w_.heads.empty())) answer(outs);
}

void GradientPass::begin() {
  const Matrix first = m_.layers.empty() ? m_.hidden : m_.layers[0].in;
  if (!c_.spec.input_projection) return copy(m_.frames, first);
  Products products;
  products.forward(m_.frames, weight(w_.input_proj, c_.d_model), vector(w_.input_proj_bias), first);
  run(products);
}

policy::NormArguments GradientPass::norm_arguments(const Vector& weight, const Vector& bias, Matrix x) const {
  policy::NormArguments a{};
  a.x = x.data;
  a.weight = vector(weight);
  a.bias = c_.spec.norm == core::NormKind::layer ? vector(bias) : nullptr;
  a.rows = x.rows, a.width = static_cast<int>(x.columns);
  a.epsilon = c_.norm_epsilon;
  return a;
}

void GradientPass::norm(const Vector& weight, const Vector& bias, Matrix x, Matrix out) const {
  policy::NormArguments a = norm_arguments(weight, bias, x);
  a.out = out.data;
  kernels_.norm(stream_, a);
}

void GradientPass::forward_layer(std::size_t index) {
  const PolicyLayerWeights& w = w_.layers[index];
  const GradientLayer& l = m_.layers[index];
  norm(w.norm, w.norm_bias, l.in, l.normed);
  const Matrix in_proj = weight(w.in_proj, 2 * c_.d_inner);
  float* const in_bias = vector(w.in_proj_bias);
  Products in;
  in.forward(l.normed, in_proj.rows_of(0, c_.d_inner), in_bias, l.x);
  in.forward(l.normed, in_proj.rows_of(c_.d_inner, c_.d_inner),
             in_bias == nullptr ? nullptr : in_bias + c_.d_inner, l.z);
  run(in);
  const policy::ConvolveArguments convolved = convolution(w, l);
  kernels_.convolve(stream_, convolved);
  if (l.final_conv != nullptr) kernels_.keep_history(stream_, convolved);
  project(w, l);
  scan(w, l);
  Products out;
  policy::ProductJob& job = out.forward(l.gated, weight(w.out_proj, c_.d_model), vector(w.out_proj_bias),
                                        index + 1 == m_.layers.size() ? m_.hidden : m_.layers[index + 1].in);
  job.after = policy::kAdd, job.other = l.in.data, job.other_row = l.in.stride;
  run(out);
}

policy::ConvolveArguments GradientPass::convolution(const PolicyLayerWeights& w,
                                                    const GradientLayer& l) const {
  policy::ConvolveArguments a{};
  a.x = l.x.data, a.s = l.s.data;
  a.weight = vector(w.conv), a.bias = vector(w.conv_bias);
  a.history = l.conv, a.final_history = l.final_conv;
  a.sequences = m_.shape.sequences, a.seq = m_.shape.seq, a.inner = static_cast<int>(c_.d_inner);
  return a;
}

void GradientPass::project(const PolicyLayerWeights& w, const GradientLayer& l) const {
  const Matrix x_proj = weight(w.x_proj, c_.dt_rank + 2 * c_.d_state);
  const float* const bias = vector(w.x_proj_bias);
  Products parts;
  std::int64_t first = 0;
  for (const Matrix& to : {l.low, l.b, l.c}) {
    parts.forward(l.s, x_proj.rows_of(first, to.columns), bias == nullptr ? nullptr : bias + first, to);
    first += to.columns;
  }
  run(parts);
  Products dt;  // its bias is added by the scan
  dt.forward(l.low, weight(w.dt_proj, c_.d_inner), nullptr, l.dt);
  run(dt);
}

core::ScanOperands<CUdeviceptr> GradientPass::scan_operands(const PolicyLayerWeights& w,
                                                            const GradientLayer& l) const {
  const auto address = [](const float* at) { return reinterpret_cast<CUdeviceptr>(at); };
  core::ScanOperands<CUdeviceptr> at;
  at[ScanOperand::x] = address(l.s.data);
  at[ScanOperand::dt] = address(l.dt.data);
  at[ScanOperand::a] = address(vector(w.a));
  at[ScanOperand::b] = address(l.b.data);
  at[ScanOperand::c] = address(l.c.data);
  at[ScanOperand::d] = address(vector(w.d));
  at[ScanOperand::z] = address(l.z.data);
  at[ScanOperand::dt_bias] = address(vector(w.dt_proj_bias));
  at[ScanOperand::initial_state] = address(l.ssm);
  at[ScanOperand::y] = address(l.gated.data);
  at[ScanOperand::final_state] = address(l.final_ssm);
  return at;
}

void GradientPass::scan(const PolicyLayerWeights& w, const GradientLayer& l) const {
  if (!is_selective_scan(c_.spec, m_.shape.decays_input)) {
    kernels_.activate(stream_, activation(w, l));
    return kernels_.scan(stream_, own_scan(w, l));
  }
  enqueue_scan(context_, stream_, layer_scan(c_, m_.shape, !w.d.empty(), false), scan_operands(w, l));
}

Matrix GradientPass::joined_hidden() const {
  return {vector(w_.heads[0].hidden), core::hidden_width(w_.heads), c_.d_model};
}

void GradientPass::answer(bool outs) {
  if (w_.heads.empty()) {
    if (w_.head.empty()) return copy(m_.final, m_.outs);
    Products head;
    head.forward(m_.final, weight(w_.head, c_.d_output), vector(w_.head_bias), m_.outs);
    return run(head);
  }
  Products hidden, second;
  hidden.forward(m_.final, joined_hidden(), vector(w_.heads[0].hidden_bias), m_.head_hidden).after =
      policy::kRelu;
  run(hidden);
  if (!outs) return;
  std::int64_t first_hidden = 0, first_out = 0;
  for (const core::PolicyHead& head : w_.heads) {
    const auto count = static_cast<std::int64_t>(head.out_bias.size());
    second.forward(m_.head_hidden.part(first_hidden, head.width()), weight(head.out, count),
                   vector(head.out_bias), m_.outs.part(first_out, count));
    first_hidden += head.width(), first_out += count;
  }
  run(second);
}

}  // namespace exphil::cuda
