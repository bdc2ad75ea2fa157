// The scans of cuda/policy/gradient_pass.hpp that cuda/scan has not: kernels/policy/gradient_scan.cu.
#include "cuda/policy/gradient_pass.hpp"

namespace exphil::cuda {

using core::PolicyLayerWeights;

policy::ActivateArguments GradientPass::activation(const PolicyLayerWeights& w,
                                                   const GradientLayer& l) const {
  policy::ActivateArguments a{};
  a.dt = l.dt.data, a.bias = vector(w.dt_proj_bias);
  a.active = l.active_dt.data, a.mean = l.mean_dt.data;
  a.rows = m_.shape.rows(), a.inner = static_cast<int>(c_.d_inner);
  a.lowest = c_.spec.dt_min, a.highest = c_.spec.dt_max;
  return a;
}

policy::GradientScanArguments GradientPass::own_scan(const PolicyLayerWeights& w,
                                                     const GradientLayer& l) const {
  policy::GradientScanArguments a{};
  a.s = l.s.data, a.dt = l.active_dt.data, a.z = l.z.data;
  if (c_.spec.input_dt == core::InputDt::mean) a.mean_dt = l.mean_dt.data;
  a.b = l.b.data, a.c = l.c.data;
  a.a = vector(w.a), a.d = vector(w.d);
  a.initial = l.ssm, a.final = l.final_ssm, a.gated = l.gated.data;
  a.states = as_pointer<float>(m_.scan_scratch);
  a.sequences = m_.shape.sequences, a.seq = m_.shape.seq;
  a.inner = static_cast<int>(c_.d_inner), a.state = static_cast<int>(c_.d_state);
  a.decays = m_.shape.decays_input ? 1 : 0;
  return a;
}

void GradientPass::own_scan_back(const PolicyLayerWeights& w, const GradientLayer& l) {
  const std::int64_t tiles = scan_tiles(c_.d_inner, c_.d_state), count = m_.shape.sequences;
  policy::GradientScanArguments a = own_scan(w, l);
  a.d_gated = m_.d_gated.data;
  a.ds = m_.ds.data, a.ddt = m_.ddt.data, a.dz = m_.dz.data;
  a.d_input_dt = m_.d_input_dt.data;
  a.a_parts = m_.sums.into(gradient(w.a), count, c_.d_inner * c_.d_state);
  if (!w.a_log.empty()) m_.sums.also_into(gradient(w.a_log), vector(w.a));
  a.d_parts = m_.sums.into(gradient(w.d), count, c_.d_inner);
  // These are needed at once, and replaced in every group.
  PartialSums now = m_.sums.rest();
  a.b_parts = now.into(m_.db.data, tiles, m_.shape.rows() * c_.d_state);
  a.c_parts = now.into(m_.dc.data, tiles, m_.shape.rows() * c_.d_state);
  kernels_.scan_back(stream_, a);
  kernels_.add_parts(stream_, now.sums());
  policy::ActivateArguments activated = activation(w, l);
  activated.d_dt = m_.ddt.data, activated.d_input_dt = m_.d_input_dt.data;
  kernels_.activate_back(stream_, activated);
}

}  // namespace exphil::cuda
