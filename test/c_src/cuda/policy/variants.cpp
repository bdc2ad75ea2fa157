#include "cuda/policy/variants.hpp"

#include "core/trunk/mamba1/mamba1.hpp"
#include "cuda/policy/batch_frame.hpp"
#include "cuda/policy/cell_walk.hpp"
#include "cuda/policy/dims.hpp"
#include "cuda/policy/gradient_kernels.hpp"
#include "cuda/policy/layer_pipeline.hpp"
#include "cuda/policy/rows.hpp"
#include "cuda/policy/scan_frame.hpp"
#include "cuda/policy/team.hpp"
#include "cuda/policy/training_kernels.hpp"
#include "cuda/policy/window.hpp"
#include "support/gated_policy.hpp"
#include "support/mamba3_policy.hpp"

namespace exphil::cuda {
namespace {

namespace mamba = core::mamba1;
using policy::kStageAll, policy::kStageNothing, policy::kStageSections;

mamba::Config sizes(std::int64_t d_model, std::int64_t d_inner, std::int64_t d_state, std::int64_t d_conv,
                    std::int64_t dt_rank, std::int64_t d_input, std::int64_t d_output, std::int64_t n_layer) {
  mamba::Config config;
  config.d_model = d_model, config.d_inner = d_inner, config.d_state = d_state, config.d_conv = d_conv;
  config.dt_rank = dt_rank, config.d_input = d_input, config.d_output = d_output, config.n_layer = n_layer;
  return config;
}

// d_hidden: values of a two-layer head; 0: the head is one linear map.
PolicyDims dims(mamba::Config config, std::int64_t d_hidden = 0, bool projection_bias = false,
                core::Precision precision = core::Precision::f32) {
  config.has.x_proj_bias = projection_bias;
  if (d_hidden > 0) config.head_widths = {d_hidden};
  core::PolicyConfig made = mamba::describe(config).policy.config;
  made.precision = precision;
  return PolicyDims(made);
}

// The kernels of a matrix state, in 16 bits.
void append_states(core::PolicyConfig config, policy::Phase phase, const std::vector<const char*>& entries,
                   std::vector<KernelSpec>* all) {
  for (const core::Precision states : {core::Precision::f16, core::Precision::bf16}) {
    config.states = states;
    for (const char* entry : entries) all->push_back(row_kernel(PolicyDims(config), phase, entry));
  }
}

KernelSpec step(const PolicyDims& dims, int team, int threads, int agents, bool cluster,
                policy::Staging staged, bool armed = false) {
  TeamShape shape;
  shape.team = team, shape.threads = threads, shape.agents = agents;
  shape.cluster = cluster, shape.staged = staged, shape.armed = armed;
  return team_kernel(dims, shape);
}

// Every walk that a device with clusters may try; one of them with a barrier of the cluster.
void append_walks(const PolicyDims& dims, std::vector<KernelSpec>* all) {
  DeviceProperties device;
  device.compute_major = 9, device.max_shared_per_block = 227 * 1024;
  const policy::Network& n = dims.network();
  if (policy::wide_walk(n, n.cells[0]).team > 0) all->push_back(cell_walk_wide_kernel(dims, 0));
  const std::vector<walk::Shape> shapes = cell_walk_candidates(device, dims, PolicyTuning(), 0);
  for (const walk::Shape& shape : shapes) all->push_back(cell_walk_kernel(dims, 0, shape, true));
  if (shapes.empty()) return;
  all->push_back(cell_walk_kernel(dims, 0, shapes.back(), false));
  const int product = pipelined_product(dims, PolicyTuning());
  if (product == policy::kNoPhase) return;
  for (const walk::Shape& shape : shapes) all->push_back(cell_walk_kernel(dims, 0, shape, true, true));
  all->push_back(product_follow_kernel(dims, product));
}

void append_batch_frame(const PolicyDims& dims, std::vector<KernelSpec>* all) {
  DeviceProperties device;
  device.compute_major = 9, device.max_shared_per_block = 227 * 1024;
  const auto shape = batch_frame_shape(device, dims, PolicyTuning(), 0);
  if (shape) all->push_back(batch_frame_kernel(dims, 0, *shape));
}

void append_scan_frame(const PolicyDims& dims, std::vector<KernelSpec>* all) {
  DeviceProperties device;
  device.compute_major = 9, device.max_shared_per_block = 227 * 1024;
  const auto shape = scan_frame_shape(device, dims, PolicyTuning());
  if (shape) all->push_back(scan_frame_kernel(dims, *shape));
}

// What ExPhil plays, and sizes that need padding.
std::vector<test::GatedSpec> gated_variants(const char* architecture) {
  test::GatedSpec played, odd;
  played.architecture = odd.architecture = architecture;
  played.d_input = 287, played.units = 256, played.heads = true;
  odd.d_input = 41, odd.units = 34;
  played.projects = odd.projects = architecture[0] == 'm';
  return {played, odd};
}

void append_played(const test::SafetensorsWriter& file, std::vector<KernelSpec>* all) {
  const PolicyDims d(test::load_policy(file)->config);
  for (const KernelSpec& kernel : row_kernels(d)) all->push_back(kernel);
  for (const bool armed : {false, true})
    all->push_back(step(d, 16, 256, 1, true, armed ? kStageAll : kStageSections, armed));
  all->push_back(step(d, 16, 256, 8, true, kStageNothing));
  all->push_back(step(d, 16, 256, 1, false, kStageNothing));
}

// Of the size that is played, with the states of its public sizes; every form in small, with keys that do not
// fill their lanes.
void append_heads(std::vector<KernelSpec>* all) {
  test::Mamba2Spec played;
  played.d_input = 287, played.d_output = 64, played.d_model = 256, played.heads = 8, played.headdim = 64;
  for (const std::int64_t state : {64, 128}) {
    played.d_state = state;
    append_played(test::mamba2_file(played), all);
  }
  test::Mamba3Spec rotated;
  rotated.d_input = 287, rotated.d_output = 64, rotated.d_model = 256, rotated.heads = 8,
  rotated.headdim = 64;
  for (const std::int64_t state : {64, 128}) {
    rotated.d_state = state, rotated.angles = state / 4;
    rotated.mimo = state > 64, rotated.ranks = rotated.mimo ? 4 : 1;
    append_played(test::mamba3_file(rotated), all);
  }
  test::DeltanetSpec delta;
  delta.d_input = 287, delta.units = 256, delta.heads = 4;
  append_played(test::deltanet_file(delta), all);
  // The forms differ in more than their products, and all of a form is in its step.
  bool first = true;
  for (const test::PolicyForm& form : test::matrix_forms(23, 5)) {
    const PolicyDims d(form.weights->config);
    for (const KernelSpec& kernel : row_kernels(d)) {
      if (first || kernel.file != "policy/product.cu") all->push_back(kernel);
    }
    all->push_back(first ? step(d, 1, 128, 2, false, kStageNothing)
                         : step(d, 4, 128, 1, true, kStageSections));
    first = false;
  }
}

}  // namespace

std::vector<KernelSpec> policy_kernel_variants() {
  using core::Precision;
  const mamba::Config played = sizes(256, 512, 16, 4, 16, 287, 64, 2),
                      uneven = sizes(65, 131, 17, 3, 5, 31, 9, 1);
  const PolicyDims melee = dims(played), odd = dims(uneven);
  // A state wider than a warp's first float4s, no convolution history, too many inputs for an argument, and a
  // width at which product_few does not fit.
  const PolicyDims wide = dims(sizes(32, 5440, 130, 1, 33, 1000, 1, 1));
  // What ExPhil plays, and the parts of its form one by one.
  mamba::Config edifice = sizes(256, 512, 16, 4, 16, 287, 81, 2);
  edifice.spec.norm = core::NormKind::layer, edifice.spec.final_norm = false;
  edifice.spec.input_dt = mamba::InputDt::mean, edifice.spec.chunk_size = 16;
  edifice.spec.dt_min = 0.001f, edifice.spec.dt_max = 0.1f;
  const PolicyDims exphil = dims(edifice, 352, true), bytes = dims(edifice, 352, true, Precision::int8);
  const PolicyDims half = dims(uneven, 0, false, Precision::f16);
  const PolicyDims melee_bf16 = dims(played, 0, false, Precision::bf16);
  const PolicyDims melee_int8 = dims(played, 0, false, Precision::int8);
  const PolicyDims melee_tf32 = dims(played, 0, false, Precision::tf32x3);
  mamba::Config by_mean = uneven, by_layer = uneven;
  by_mean.spec.input_dt = mamba::InputDt::mean, by_mean.spec.chunk_size = by_mean.spec.window = 16;
  by_layer.spec.norm = core::NormKind::layer, by_layer.spec.dt_min = 0.001f, by_layer.spec.dt_max = 0.1f;
  const PolicyDims mean = dims(by_mean), normed = dims(by_layer, 70, true);
  std::vector<KernelSpec> all = {
      step(melee, 16, 256, 1, true, kStageSections),
      step(melee, 16, 256, 8, true, kStageSections),
      step(melee, 8, 512, 1, true, kStageNothing),
      step(melee, 16, 256, 1, false, kStageNothing),
      step(odd, 4, 128, 1, true, kStageSections),
      step(odd, 1, 128, 2, false, kStageNothing),
      step(wide, 16, 256, 1, false, kStageNothing),
      step(exphil, 16, 256, 1, true, kStageSections),
      step(exphil, 16, 256, 8, true, kStageSections),
      step(exphil, 16, 256, 1, false, kStageNothing),
      step(mean, 4, 128, 1, true, kStageSections),
      step(normed, 1, 128, 2, false, kStageNothing),
      step(bytes, 16, 256, 8, true, kStageSections),
      step(half, 1, 128, 2, false, kStageNothing),
      step(melee_bf16, 16, 256, 1, true, kStageSections),
      step(melee_int8, 16, 256, 1, false, kStageNothing),
      step(melee, 16, 256, 1, true, kStageAll),  // where EXPHIL_NATIVE_POLICY asks for it
      step(melee, 16, 256, 1, true, kStageAll, true),
      step(melee, 16, 256, 1, true, kStageSections, true),
      step(odd, 1, 128, 1, false, kStageNothing, true),
      step(wide, 16, 256, 1, false, kStageNothing, true),
      row_kernel(melee_bf16, melee_bf16.network().layer.phases[0], "policy_product_many"),
      row_kernel(half, half.network().layer.phases[0], "policy_product_few"),
      row_kernel(melee_tf32, melee_tf32.network().layer.phases[0], "policy_product_few"),
      row_kernel(melee_tf32, melee_tf32.network().layer.phases[0], "policy_product_some"),
      row_kernel(melee_tf32, melee_tf32.network().layer.phases[0], "policy_product_many"),
      row_kernel(melee_tf32, melee_tf32.network().layer.phases[0], "policy_product_wide"),
      row_kernel(half, {policy::Kind::scan, 0}, "policy_advance_batch"),
  };
  for (const PolicyDims& d : {melee, odd, wide, exphil, mean, normed, bytes}) {
    for (const KernelSpec& spec : row_kernels(d)) all.push_back(spec);
  }
  // A channel's states in as many lanes as there are, channels in several passes.
  const PolicyDims passes = dims(sizes(128, 192, 40, 3, 8, 90, 9, 1));
  for (const PolicyDims& d : {melee, exphil, bytes, melee_bf16, passes}) append_scan_frame(d, &all);
  // Each cell with each kind of padding, and what ExPhil plays.
  for (const char* architecture : {"gru", "lstm", "min_gru", "min_lstm"}) {
    for (const test::GatedSpec& spec : gated_variants(architecture)) {
      const PolicyDims gated(test::make_gated(spec)->config);
      for (const KernelSpec& kernel : row_kernels(gated)) all.push_back(kernel);
      const bool played = spec.units == 256;
      append_walks(gated, &all);
      append_batch_frame(gated, &all);
      all.push_back(
          step(gated, played ? 16 : 4, played ? 256 : 128, 1, true, played ? kStageSections : kStageNothing));
      all.push_back(step(gated, played ? 16 : 1, played ? 256 : 128, 8, false, kStageNothing));
      if (played) all.push_back(step(gated, 16, 256, 1, true, kStageAll, true));
      core::PolicyConfig on_tensor_cores = gated.config;
      on_tensor_cores.precision = Precision::tf32x3;
      for (const KernelSpec& kernel : row_kernels(PolicyDims(on_tensor_cores))) {
        if (kernel.file == "policy/cell_wide.cu") all.push_back(kernel);
      }
      if (played) append_walks(PolicyDims(on_tensor_cores), &all);
    }
  }
  append_heads(&all);
  append_states(melee.config, {policy::Kind::scan, 0}, {"policy_advance_batch", "policy_advance_time"}, &all);
  for (const test::PolicyForm& form : test::matrix_forms(23, 5)) {
    append_states(form.weights->config, {policy::Kind::heads, 0}, {"policy_heads_batch", "policy_heads_time"},
                  &all);
  }
  // Walks of which some weights are in shared memory.
  for (const core::Precision precision : {Precision::f32, Precision::int8}) {
    test::GatedSpec wide;
    wide.architecture = "lstm", wide.d_input = 41, wide.units = 512;
    core::PolicyConfig config = test::make_gated(wide)->config;
    config.precision = precision;
    append_walks(PolicyDims(config), &all);
  }
  for (const PolicyDims& d : {melee, odd, exphil, mean, normed, bytes}) {
    all.push_back(WindowShape{}.kernel(d));
    all.push_back(WindowShape{{8, 512, 4}}.kernel(d));
  }
  // The gradient's kernels: those of one convolution, and what another one compiles anew.
  for (const KernelSpec& spec : gradient_kernels(4)) all.push_back(spec);
  for (const std::int64_t keys : {64, 128, 5, 256}) {
    for (const std::int64_t ranks : {-1, 0, 1, 4}) {
      for (const KernelSpec& spec : gradient_head_kernels(keys, ranks)) {
        if ((keys == 64 && ranks == 0) || !spec.defines.empty()) all.push_back(spec);
      }
    }
  }
  for (const KernelSpec& spec : gradient_kernels(1)) {
    if (!spec.defines.empty()) all.push_back(spec);
  }
  for (const KernelSpec& spec : gradient_trapezoid_kernels()) all.push_back(spec);
  for (const KernelSpec& spec : training_kernels()) all.push_back(spec);
  return all;
}

}  // namespace exphil::cuda
