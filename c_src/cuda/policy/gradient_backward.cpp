// The backward half of cuda/policy/gradient_pass.hpp.
#include <algorithm>

#include "core/policy/heads.hpp"
#include "cuda/policy/gradient_pass.hpp"
#include "cuda/scan/backward.hpp"

namespace exphil::cuda {

using core::PolicyLayerWeights;
using core::ScanOperand;

void GradientPass::backward(bool frames) {
  heads_back();
  for (std::size_t i = m_.layers.size(); i-- > 0;) layer_back(i);
  frames_back(frames);
}

void GradientPass::add_parts() {
  kernels_.add_parts(stream_, m_.sums.sums());
  m_.sums.restart();
}

// Of rows [first, first + dy.columns) of a weight {outs, depth} and of its bias.
void GradientPass::linear_weight(Products& products, const Vector& weight, const Vector& bias,
                                 std::int64_t first, Matrix dy, Matrix x) {
  const std::int64_t parts = parts_of_rows(dy.rows);
  float* const to = gradient(weight);
  float* const to_bias = gradient(bias);
  float* const sums =
      m_.sums.into(to == nullptr ? to : to + first * x.columns, parts, dy.columns * x.columns);
  float* const bias_sums = m_.sums.into(to_bias == nullptr ? to_bias : to_bias + first, parts, dy.columns);
  if (sums != nullptr) products.weight(dy, x, sums, bias_sums);
}

// Leaves the gradient of the hidden state after the last layer in d_hidden.
void GradientPass::heads_back() {
  const Matrix d_final = c_.spec.final_norm ? m_.d_normed : m_.d_hidden;
  if (!w_.heads.empty()) {
    two_layer_heads_back(d_final);
  } else if (!w_.head.empty()) {
    Products back, sums;
    back.back(m_.d_outs, weight(w_.head, c_.d_output), d_final);
    linear_weight(sums, w_.head, w_.head_bias, 0, m_.d_outs, m_.final);
    run(back);
    run(sums);
  } else {
    copy(m_.d_outs, d_final);
  }
  if (c_.spec.final_norm) norm_back(w_.norm_f, w_.norm_f_bias, m_.hidden, m_.d_normed, false);
  add_parts();
}

void GradientPass::two_layer_heads_back(Matrix d_final) {
  Products second, first, sums;
  std::int64_t first_hidden = 0, first_out = 0;
  for (const core::PolicyHead& head : w_.heads) {
    const auto count = static_cast<std::int64_t>(head.out_bias.size());
    const Matrix dy = m_.d_outs.part(first_out, count);
    const Matrix hidden = m_.head_hidden.part(first_hidden, head.width());
    policy::ProductJob& job =
        second.back(dy, weight(head.out, count), m_.d_head_hidden.part(first_hidden, head.width()));
    job.after = policy::kMask, job.other = hidden.data, job.other_row = hidden.stride;
    linear_weight(sums, head.out, head.out_bias, 0, dy, hidden);
    first_hidden += head.width(), first_out += count;
  }
  run(second);
  first.back(m_.d_head_hidden, joined_hidden(), d_final);
  run(first);
  std::int64_t place = 0;
  for (const core::PolicyHead& head : w_.heads) {
    linear_weight(sums, head.hidden, head.hidden_bias, 0, m_.d_head_hidden.part(place, head.width()),
                  m_.final);
    place += head.width();
  }
  run(sums);
}

void GradientPass::norm_back(const Vector& weight, const Vector& bias, Matrix x, Matrix dy, bool adds) {
  policy::NormArguments a = norm_arguments(weight, bias, x);
  const std::int64_t blocks = norm_blocks(x.rows);
  a.dy = dy.data, a.dx = m_.d_hidden.data, a.adds = adds ? 1 : 0;
  a.weight_parts = m_.sums.into(gradient(weight), blocks, x.columns);
  if (a.bias != nullptr) a.bias_parts = m_.sums.into(gradient(bias), blocks, x.columns);
  kernels_.norm_back(stream_, a);
}

void GradientPass::layer_back(std::size_t index) {
  const PolicyLayerWeights& w = w_.layers[index];
  const GradientLayer& l = m_.layers[index];
  Products out, in;
  out.back(m_.d_hidden, weight(w.out_proj, c_.d_model), m_.d_gated);
  run(out);
  scan_back(w, l);
  project_back(w);
  convolve_back(w, l);
  const Matrix in_proj = weight(w.in_proj, 2 * c_.d_inner);
  Products::through(in.back(m_.dx, in_proj.rows_of(0, c_.d_inner), m_.d_normed), m_.dz,
                    in_proj.rows_of(c_.d_inner, c_.d_inner));
  run(in);
  weights_back(w, l);
  norm_back(w.norm, w.norm_bias, l.in, m_.d_normed, true);
  add_parts();
}

void GradientPass::scan_back(const PolicyLayerWeights& w, const GradientLayer& l) {
  const auto address = [](const float* at) { return reinterpret_cast<CUdeviceptr>(at); };
  if (!is_selective_scan(c_.spec, m_.shape.decays_input)) return own_scan_back(w, l);
  core::ScanOperands<CUdeviceptr> at = scan_operands(w, l);
  at[ScanOperand::dy] = address(m_.d_gated.data);
  at[ScanOperand::grad_x] = address(m_.ds.data);
  at[ScanOperand::grad_dt] = address(m_.ddt.data);
  at[ScanOperand::grad_b] = address(m_.db.data);
  at[ScanOperand::grad_c] = address(m_.dc.data);
  at[ScanOperand::grad_z] = address(m_.dz.data);
  at[ScanOperand::grad_a] = address(m_.sums.into(gradient(w.a), 1, c_.d_inner * c_.d_state));
  if (!w.a_log.empty()) m_.sums.also_into(gradient(w.a_log), vector(w.a));  // A = -exp(a_log)
  at[ScanOperand::grad_d] = address(m_.sums.into(gradient(w.d), 1, c_.d_inner));
  enqueue_scan_gradient(context_, stream_, layer_scan(c_, m_.shape, !w.d.empty(), true), at, m_.scan_scratch);
}

// dt, B and C back to s.
void GradientPass::project_back(const PolicyLayerWeights& w) const {
  const Matrix x_proj = weight(w.x_proj, c_.dt_rank + 2 * c_.d_state);
  Products low, s;
  low.back(m_.ddt, weight(w.dt_proj, c_.d_inner), m_.d_low);
  run(low);
  policy::ProductJob& job = s.back(m_.d_low, x_proj.rows_of(0, c_.dt_rank), m_.ds);
  Products::through(job, m_.db, x_proj.rows_of(c_.dt_rank, c_.d_state));
  Products::through(job, m_.dc, x_proj.rows_of(c_.dt_rank + c_.d_state, c_.d_state));
  job.after = policy::kAdd, job.other = m_.ds.data, job.other_row = m_.ds.stride;
  run(s);
}

void GradientPass::convolve_back(const PolicyLayerWeights& w, const GradientLayer& l) {
  policy::ConvolveArguments a = convolution(w, l);
  const std::int64_t parts = m_.shape.sequences * convolve_segments(m_.shape.seq);
  a.ds = m_.ds.data, a.dx = m_.dx.data;
  a.weight_parts = m_.sums.into(gradient(w.conv), parts, c_.d_inner * c_.d_conv);
  a.bias_parts = m_.sums.into(gradient(w.conv_bias), parts, c_.d_inner);
  kernels_.convolve_back(stream_, a);
}

// Of the five matrices of a layer, in one launch.
void GradientPass::weights_back(const PolicyLayerWeights& w, const GradientLayer& l) {
  Products sums;
  linear_weight(sums, w.in_proj, w.in_proj_bias, 0, m_.dx, l.normed);
  linear_weight(sums, w.in_proj, w.in_proj_bias, c_.d_inner, m_.dz, l.normed);
  linear_weight(sums, w.out_proj, w.out_proj_bias, 0, m_.d_hidden, l.gated);
  std::int64_t first = 0;
  for (const Matrix& dy : {m_.d_low, m_.db, m_.dc}) {
    linear_weight(sums, w.x_proj, w.x_proj_bias, first, dy, l.s);
    first += dy.columns;
  }
  linear_weight(sums, w.dt_proj, w.dt_proj_bias, 0, m_.ddt, l.low);
  run(sums);
}

void GradientPass::frames_back(bool frames) {
  if (!c_.spec.input_projection) {
    if (frames) copy(m_.d_hidden, m_.d_frames);
    return;
  }
  Products sums, back;
  linear_weight(sums, w_.input_proj, w_.input_proj_bias, 0, m_.d_hidden, m_.frames);
  run(sums);
  if (frames) {
    back.back(m_.d_hidden, weight(w_.input_proj, c_.d_model), m_.d_frames);
    run(back);
  }
  add_parts();
}

}  // namespace exphil::cuda
