#include "cuda/policy/variants.hpp"

#include "cuda/policy/dims.hpp"
#include "cuda/policy/gradient_kernels.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/team.hpp"
#include "cuda/policy/window.hpp"

namespace exphil::cuda {
namespace {

PolicyDims dims(std::int64_t d_model, std::int64_t d_inner, std::int64_t d_state, std::int64_t d_conv,
                std::int64_t dt_rank, std::int64_t d_input, std::int64_t d_output, std::int64_t n_layer) {
  core::mamba1::Config config;
  config.d_model = d_model, config.d_inner = d_inner, config.d_state = d_state, config.d_conv = d_conv;
  config.dt_rank = dt_rank, config.d_input = d_input, config.d_output = d_output, config.n_layer = n_layer;
  return PolicyDims(core::mamba1::describe(core::mamba1::zero_weights(config)).config);
}

KernelSpec step(const PolicyDims& dims, int team, int threads, int agents, bool cluster, bool staged,
                bool armed = false) {
  TeamShape shape;
  shape.team = team, shape.threads = threads, shape.agents = agents;
  shape.cluster = cluster, shape.staged = staged, shape.armed = armed;
  return team_kernel(dims, shape);
}

void append_rows(std::vector<KernelSpec>* all, const PolicyDims& dims) {
  for (const std::string& product : row_products(dims)) {
    for (const char* shape : {"few", "many"}) all->push_back(product_kernel(dims, product, shape));
  }
  for (const char* entry : {"policy_row_scales", "policy_convolve_batch", "policy_convolve_time",
                            "policy_activate_dt", "policy_advance_batch", "policy_advance_time"}) {
    all->push_back(rows_kernel(dims, entry));
  }
}

}  // namespace

std::vector<KernelSpec> policy_kernel_variants() {
  const PolicyDims melee = dims(256, 512, 16, 4, 16, 287, 64, 2);
  const PolicyDims odd = dims(65, 131, 17, 3, 5, 31, 9, 1);
  // A state wider than a warp's first float4s, no convolution history, too many inputs for an argument, and a
  // width at which product_few does not fit.
  const PolicyDims wide = dims(32, 5440, 130, 1, 33, 1000, 1, 1);
  // What ExPhil plays, and the parts of its form one by one.
  PolicyDims exphil = dims(256, 512, 16, 4, 16, 287, 81, 2);
  exphil.d_hidden = 352;
  exphil.form = {true, false, true, true, true, true, false};
  exphil.mamba.config.spec.dt_min = 0.001f, exphil.mamba.config.spec.dt_max = 0.1f;
  PolicyDims bytes = exphil, half = odd;
  bytes.stored = policy::Stored::int8, half.stored = policy::Stored::f16;
  PolicyDims melee_bf16 = melee, melee_int8 = melee;
  melee_bf16.stored = policy::Stored::bf16, melee_int8.stored = policy::Stored::int8;
  PolicyDims mean = odd, normed = odd;
  mean.form.mean_dt = mean.form.decays_input = mean.form.carried_decays_input = true;
  normed.form.layer_norm = normed.form.projection_bias = normed.form.clips_dt = true, normed.d_hidden = 70;
  std::vector<KernelSpec> all = {
      step(melee, 16, 256, 1, true, true),        step(melee, 16, 256, 8, true, true),
      step(melee, 8, 512, 1, true, false),        step(melee, 16, 256, 1, false, false),
      step(odd, 4, 128, 1, true, true),           step(odd, 1, 128, 2, false, false),
      step(wide, 16, 256, 1, false, false),       step(exphil, 16, 256, 1, true, true),
      step(exphil, 16, 256, 8, true, true),       step(exphil, 16, 256, 1, false, false),
      step(mean, 4, 128, 1, true, true),          step(normed, 1, 128, 2, false, false),
      step(bytes, 16, 256, 8, true, true),        step(half, 1, 128, 2, false, false),
      step(melee_bf16, 16, 256, 1, true, true),   step(melee_int8, 16, 256, 1, false, false),
      step(melee, 16, 256, 1, true, true, true),  step(odd, 1, 128, 1, false, false, true),
      step(wide, 16, 256, 1, false, false, true), product_kernel(melee_bf16, "in_proj", "many"),
      product_kernel(half, "in_proj", "few"),     rows_kernel(half, "policy_advance_batch"),
  };
  for (const PolicyDims& d : {melee, odd, wide, exphil, mean, normed, bytes}) append_rows(&all, d);
  for (const PolicyDims& d : {melee, odd, exphil, mean, normed, bytes}) {
    all.push_back(WindowShape{}.kernel(d));
    all.push_back(WindowShape{{8, 512, 4}}.kernel(d));
  }
  // The gradient's kernels: those of one convolution, and what another one compiles anew.
  for (const KernelSpec& spec : gradient_kernels(4)) all.push_back(spec);
  for (const KernelSpec& spec : gradient_kernels(1)) {
    if (!spec.defines.empty()) all.push_back(spec);
  }
  return all;
}

}  // namespace exphil::cuda
