// The scans of cuda/policy/gradient_pass.hpp, forward and backward, and the softplus of their dt: by
// cuda/scan, or by kernels/policy/gradient_scan.cu where that has not got them.
#include "cuda/policy/gradient_order.hpp"
#include "cuda/policy/gradient_pass.hpp"
#include "cuda/scan/backward.hpp"
#include "cuda/scan/forward.hpp"

namespace exphil::cuda {

using core::ScanOperand;

namespace {

CUdeviceptr address(const float* at) {
  return reinterpret_cast<CUdeviceptr>(at);
}

}  // namespace

core::ScanShape scan_shape(const core::SelectiveScan& p, const GradientShape& shape, bool gradient) {
  core::ScanShape scan;
  scan.batch = shape.sequences, scan.seq = shape.seq, scan.dim = p.x.size, scan.state = p.b.size;
  scan.options.dt_softplus = p.activates;
  if (p.activates) scan.options.dt_min = p.lowest, scan.options.dt_max = p.highest;
  scan.add(ScanOperand::z);
  if (p.dt_bias != core::kNone) scan.add(ScanOperand::dt_bias);
  if (p.d != core::kNone) scan.add(ScanOperand::d);
  if (shape.with_state) scan.add(ScanOperand::initial_state);
  if (!gradient) {
    if (shape.keeps_state) scan.add(ScanOperand::final_state);
    return scan;
  }
  scan.remove(ScanOperand::y);
  for (const ScanOperand id :
       {ScanOperand::dy, ScanOperand::grad_x, ScanOperand::grad_dt, ScanOperand::grad_a, ScanOperand::grad_b,
        ScanOperand::grad_c, ScanOperand::grad_z}) {
    scan.add(id);
  }
  if (p.d != core::kNone) scan.add(ScanOperand::grad_d);
  if (shape.by_state) scan.add(ScanOperand::grad_initial_state);
  return scan;
}

// ---- softplus, and the mean of what it gives ----

policy::ActivateArguments GradientPass::activation(const core::Softplus& p) const {
  policy::ActivateArguments a{};
  a.dt = in(p.in), a.bias = weight(p.bias), a.active = out(p.out);
  if (const core::Mean* const mean = mean_of(*phases_, p)) a.mean = out(mean->out);
  a.rows = m_.shape.rows(), a.inner = static_cast<int>(p.in.size);
  a.lowest = p.lowest, a.highest = p.highest;
  return a;
}

void GradientPass::forward(const core::Softplus& p) {
  kernels_.activate(stream_, activation(p));
}

void GradientPass::back(const core::Softplus& p) {
  run_inputs();
  policy::ActivateArguments a = activation(p);
  a.d_active = dense_given(p.out);
  if (const core::Mean* const mean = mean_of(*phases_, p)) {
    const Matrix& terms = gradients(mean->out.vector)[0];
    if (written_.count(terms.data) > 0) a.d_input_dt = terms.data;
  }
  a.d_dt = stored(p.in);
  kernels_.activate_back(stream_, a);
  bias_back(p.bias, p.in, a.d_dt);
  settle();
}

// ---- scans ----

// Of a scan that activates its dt, for policy/gradient_scan.cu.
policy::ActivateArguments GradientPass::activation(const core::SelectiveScan& p) const {
  policy::ActivateArguments a{};
  a.dt = in(p.dt), a.bias = weight(p.dt_bias), a.active = m_.blocks[block_].active_dt[phase_].data;
  a.rows = m_.shape.rows(), a.inner = static_cast<int>(p.x.size);
  a.lowest = p.lowest, a.highest = p.highest;
  return a;
}

policy::GradientScanArguments GradientPass::own_scan(const core::SelectiveScan& p) const {
  policy::GradientScanArguments a{};
  const auto state = static_cast<std::size_t>(p.state);
  a.s = in(p.x), a.z = in(p.z), a.b = in(p.b), a.c = in(p.c);
  a.dt = p.activates ? m_.blocks[block_].active_dt[phase_].data : in(p.dt);
  if (p.input_dt) a.mean_dt = in(p.input_dt);
  a.a = weight(p.a), a.d = weight(p.d);
  a.initial = m_.states[state], a.final = m_.final_states[state], a.gated = out(p.out);
  a.states = as_pointer<float>(m_.scan_scratch);
  a.sequences = m_.shape.sequences, a.seq = m_.shape.seq;
  a.inner = static_cast<int>(p.x.size), a.state = static_cast<int>(p.b.size);
  a.decays = core::decays_input(p, m_.shape.length) ? 1 : 0;
  return a;
}

core::ScanOperands<CUdeviceptr> GradientPass::scan_operands(const core::SelectiveScan& p) const {
  const auto state = static_cast<std::size_t>(p.state);
  core::ScanOperands<CUdeviceptr> at;
  at[ScanOperand::x] = address(in(p.x));
  at[ScanOperand::dt] = address(in(p.dt));
  at[ScanOperand::a] = address(weight(p.a));
  at[ScanOperand::b] = address(in(p.b));
  at[ScanOperand::c] = address(in(p.c));
  at[ScanOperand::d] = address(weight(p.d));
  at[ScanOperand::z] = address(in(p.z));
  at[ScanOperand::dt_bias] = address(weight(p.dt_bias));
  at[ScanOperand::initial_state] = address(m_.states[state]);
  at[ScanOperand::y] = address(out(p.out));
  at[ScanOperand::final_state] = address(m_.final_states[state]);
  return at;
}

void GradientPass::forward(const core::SelectiveScan& p) {
  if (is_selective_scan(p, m_.shape)) {
    return enqueue_scan(context_, stream_, scan_shape(p, m_.shape, false), scan_operands(p));
  }
  if (p.activates) kernels_.activate(stream_, activation(p));
  kernels_.scan(stream_, own_scan(p));
}

float* GradientPass::negative_exp_parts(core::WeightId id, std::int64_t parts, std::int64_t count) {
  float* const room = sums().into(gradient(id), parts, count);
  const core::WeightId source = n_.weight(id).negative_exp_of;
  if (source != core::kNone) sums().also_into(gradient(source), weight(id));
  return room;
}

void GradientPass::back(const core::SelectiveScan& p) {
  run_inputs();
  if (!is_selective_scan(p, m_.shape)) return own_scan_back(p);
  core::ScanOperands<CUdeviceptr> at = scan_operands(p);
  const float* const d_dt = stored(p.dt);
  at[ScanOperand::dy] = address(dense_given(p.out));
  at[ScanOperand::grad_x] = address(stored(p.x));
  at[ScanOperand::grad_dt] = address(d_dt);
  at[ScanOperand::grad_b] = address(stored(p.b));
  at[ScanOperand::grad_c] = address(stored(p.c));
  at[ScanOperand::grad_z] = address(stored(p.z));
  at[ScanOperand::grad_a] = address(negative_exp_parts(p.a, 1, p.x.size * p.b.size));
  at[ScanOperand::grad_d] = address(sums().into(gradient(p.d), 1, p.x.size));
  at[ScanOperand::grad_initial_state] = address(m_.d_states[static_cast<std::size_t>(p.state)]);
  enqueue_scan_gradient(context_, stream_, scan_shape(p, m_.shape, true), at, m_.scan_scratch);
  bias_back(p.dt_bias, p.dt, d_dt);
  settle();
}

void GradientPass::own_scan_back(const core::SelectiveScan& p) {
  const std::int64_t tiles = scan_tiles(p.x.size, p.b.size), count = m_.shape.sequences;
  policy::GradientScanArguments a = own_scan(p);
  a.d_gated = dense_given(p.out), a.d_initial = m_.d_states[static_cast<std::size_t>(p.state)];
  a.ds = stored(p.x), a.ddt = stored(p.dt), a.dz = stored(p.z);
  if (p.input_dt) a.d_input_dt = stored(p.input_dt.vector, gradients(p.input_dt.vector)[0]);
  a.a_parts = negative_exp_parts(p.a, count, p.x.size * p.b.size);
  a.d_parts = sums().into(gradient(p.d), count, p.x.size);
  // These are needed at once, and no group adds to those of another.
  PartialSums now = sums().rest();
  const auto part_of = [&](const core::Span& span) {
    const Matrix to = changed(span);
    now.set_adds(!is_first(span.vector, to));
    return now.into(to.data, tiles, to.size());
  };
  a.b_parts = part_of(p.b), a.c_parts = part_of(p.c);
  kernels_.scan_back(stream_, a);
  kernels_.add_parts(stream_, now.sums());
  if (p.activates) {
    policy::ActivateArguments activated = activation(p);
    activated.d_active = activated.d_dt = a.ddt;
    kernels_.activate_back(stream_, activated);
  }
  bias_back(p.dt_bias, p.dt, a.ddt);
  settle();
}

}  // namespace exphil::cuda
