#include "cuda/policy/dims.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/error.hpp"
#include "cuda/jit/kernel_spec.hpp"

namespace exphil::cuda {
namespace {

// For larger dimensions the 32-bit offsets within one layer's weights could overflow.
constexpr std::int64_t kMostDim = 1 << 14;
constexpr std::int64_t kMostState = 1024;

void require_at_most(std::int64_t value, std::int64_t limit, const char* name) {
  if (value > limit) {
    core::fail(core::ErrorKind::limit_exceeded, "", "the CUDA backend takes policies with ", name, " up to ",
               limit, ", this one has ", value);
  }
}

policy::Stored stored_of(core::Precision precision) {
  switch (precision) {
    case core::Precision::f32:
      return policy::Stored::f32;
    case core::Precision::bf16:
      return policy::Stored::bf16;
    case core::Precision::f16:
      return policy::Stored::f16;
    case core::Precision::int8:
      break;
  }
  return policy::Stored::int8;
}

policy::Form form_of(const core::mamba1::Spec& spec, std::int64_t window) {
  policy::Form form;
  form.layer_norm = spec.norm == core::NormKind::layer;
  form.final_norm = spec.final_norm;
  form.clips_dt = std::isfinite(spec.dt_min) || std::isfinite(spec.dt_max);
  form.mean_dt = spec.input_dt == core::mamba1::InputDt::mean;
  form.decays_input = spec.chunk_size > 1;
  form.carried_decays_input = window > 1 && window <= spec.chunk_size;
  return form;
}

}  // namespace

PolicyDims::PolicyDims(const core::PolicyConfig& given) : config(given), mamba(core::mamba1::form_of(given)) {
  const core::mamba1::Config& c = mamba.config;
  require_at_most(c.d_model, kMostDim, "d_model");
  require_at_most(c.d_inner, kMostDim, "d_inner");
  require_at_most(c.d_input, kMostDim, "d_input");
  require_at_most(c.d_output, kMostDim, "d_output");
  require_at_most(c.dt_rank, 1024, "dt_rank");
  require_at_most(c.d_state, kMostState, "d_state");
  require_at_most(c.d_conv, 16, "d_conv");
  require_at_most(c.n_layer, 256, "n_layer");
  require_at_most(mamba.head_width, kMostDim, "hidden values of its heads");
  d_model = static_cast<int>(c.d_model), d_inner = static_cast<int>(c.d_inner);
  d_state = static_cast<int>(c.d_state), d_conv = static_cast<int>(c.d_conv);
  dt_rank = static_cast<int>(c.dt_rank), n_layer = static_cast<int>(c.n_layer);
  d_input = static_cast<int>(c.d_input), d_output = static_cast<int>(c.d_output);
  d_hidden = static_cast<int>(mamba.head_width);
  form = form_of(c.spec, config.window);
  for (const core::mamba1::LayerIds& layer : mamba.ids.layers) {
    form.projection_bias = form.projection_bias || layer.x_proj_bias != core::kNone;
  }
  stored = stored_of(config.precision);
}

bool PolicyDims::decays(std::int64_t frames) const {
  return frames > 1 && frames <= mamba.config.spec.chunk_size;
}

std::vector<std::string> PolicyDims::defines() const {
  const auto bits = [](const char* name, float value) {
    std::uint32_t word;
    std::memcpy(&word, &value, sizeof(word));
    return std::string(name) + "=" + std::to_string(word) + "u";
  };
  const auto flag = [](const char* name, bool value) { return define(name, value ? 1 : 0); };
  return {define("D_MODEL", d_model),
          define("D_INNER", d_inner),
          define("D_STATE", d_state),
          define("D_CONV", d_conv),
          define("DT_RANK", dt_rank),
          define("D_INPUT", d_input),
          define("D_OUTPUT", d_output),
          define("N_LAYER", n_layer),
          define("D_HIDDEN", d_hidden),
          flag("LAYER_NORM", form.layer_norm),
          flag("FINAL_NORM", form.final_norm),
          flag("PROJECTION_BIAS", form.projection_bias),
          flag("CLIPS_DT", form.clips_dt),
          flag("MEAN_DT", form.mean_dt),
          flag("DECAYS_INPUT", form.decays_input),
          flag("CARRIED_DECAYS_INPUT", form.carried_decays_input),
          define("WEIGHTS", static_cast<int>(stored)),
          bits("DT_MIN", mamba.config.spec.dt_min),
          bits("DT_MAX", mamba.config.spec.dt_max)};
}

std::vector<std::string> TeamShape::defines(const PolicyDims& dims) const {
  std::vector<std::string> all = dims.defines();
  all.insert(all.end(), {define("TEAM", team), define("THREADS", threads), define("AGENTS", agents),
                         define("CLUSTER", cluster ? 1 : 0), define("STAGED", staged ? 1 : 0),
                         define("ARMED", armed ? 1 : 0)});
  return all;
}

policy::ActivationLayout TeamShape::activations(const PolicyDims& dims) const {
  return policy::ActivationLayout(dims, policy::Share(dims, team), agents);
}

long long TeamShape::shared_bytes(const PolicyDims& dims) const {
  return (staged ? policy::TeamLayout(dims, team).staged_bytes : 0) + activations(dims).bytes;
}

}  // namespace exphil::cuda
