#include "support/mamba.hpp"

namespace exphil::test {

core::mamba1::Weights mamba_weights(const core::PolicyWeights& policy) {
  const Form form = form_of(policy.config);
  const auto of = [&policy](core::WeightId id) { return core::values_of(policy.values, id); };
  core::mamba1::Weights w;
  w.config = form.config;
  core::mamba1::parse_dialect(fact(policy.config, "dialect"), &w.config.spec.dialect);
  w.fingerprint = policy.fingerprint;
  w.input_proj = of(form.ids.input_proj), w.input_proj_bias = of(form.ids.input_proj_bias);
  w.norm_f = of(form.ids.norm_f), w.norm_f_bias = of(form.ids.norm_f_bias);
  if (form.head_width == 0) w.head = of(form.ids.head), w.head_bias = of(form.ids.head_bias);
  for (const LayerIds& ids : form.ids.layers) {
    core::mamba1::Layer l;
    l.norm = of(ids.norm), l.norm_bias = of(ids.norm_bias);
    l.in_proj = of(ids.in_proj), l.in_proj_bias = of(ids.in_proj_bias);
    l.conv = of(ids.conv), l.conv_bias = of(ids.conv_bias);
    l.x_proj = of(ids.x_proj), l.x_proj_bias = of(ids.x_proj_bias);
    l.dt_proj = of(ids.dt_proj), l.dt_proj_bias = of(ids.dt_bias);
    l.a_log = of(policy.network().weight(ids.a).negative_exp_of), l.d = of(ids.d);
    l.out_proj = of(ids.out_proj), l.out_proj_bias = of(ids.out_proj_bias);
    w.layers.push_back(l);
  }
  return w;
}

std::string fact(const core::PolicyConfig& config, const std::string& name) {
  for (const auto& [key, value] : config.facts) {
    if (key != name) continue;
    if (const auto* const text = std::get_if<std::string>(&value)) return *text;
    if (const auto* const number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  }
  return "";
}

bool decays_input(const core::PolicyConfig& config, std::int64_t frames) {
  const std::vector<const core::Phase*> phases = core::phases_of(config.network);
  return std::any_of(phases.begin(), phases.end(), [frames](const core::Phase* phase) {
    const auto* const scan = std::get_if<core::SelectiveScan>(phase);
    return scan != nullptr && core::decays_input(*scan, frames);
  });
}

}  // namespace exphil::test
