#include "support/mamba.hpp"

#include <algorithm>
#include <utility>

namespace exphil::test {

MambaWeights mamba_weights(const core::PolicyWeights& policy) {
  const Form form = form_of(policy.config);
  const auto of = [&policy](core::WeightId id) { return core::values_of(policy.values, id); };
  MambaWeights w;
  w.config = form.config;
  core::mamba1::parse_dialect(fact(policy.config, "dialect"), &w.config.spec.dialect);
  w.fingerprint = policy.fingerprint;
  w.input_proj = of(form.ids.input_proj), w.input_proj_bias = of(form.ids.input_proj_bias);
  w.norm_f = of(form.ids.norm_f), w.norm_f_bias = of(form.ids.norm_f_bias);
  if (form.head_width == 0) w.head = of(form.ids.head), w.head_bias = of(form.ids.head_bias);
  for (const LayerIds& ids : form.ids.layers) {
    MambaLayer l;
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

namespace {

// A block for each head; zeros beside them.
void put_heads(const MambaWeights& w, MambaValues* hidden, MambaValues* hidden_bias, MambaValues* out,
               MambaValues* out_bias) {
  std::size_t first_hidden = 0, first_out = 0;
  const std::size_t stride = hidden_bias->size();
  const auto put = [](const MambaValues& from, MambaValues* to, std::size_t at) {
    std::copy(from.begin(), from.end(), to->begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (const MambaHead& head : w.heads) {
    const std::size_t width = head.hidden_bias.size();
    put(head.hidden, hidden, first_hidden * static_cast<std::size_t>(w.config.d_model));
    put(head.hidden_bias, hidden_bias, first_hidden);
    for (std::size_t i = 0; i < head.out.size(); ++i) {
      (*out)[(first_out + i / width) * stride + first_hidden + i % width] = head.out[i];
    }
    put(head.out_bias, out_bias, first_out);
    first_hidden += width, first_out += head.out_bias.size();
  }
}

// Which weights there are.
void describe_weights(MambaWeights* w) {
  core::mamba1::Optional& has = w->config.has;
  const MambaLayer& l = w->layers.front();
  has.norm_bias = !l.norm_bias.empty(), has.in_proj_bias = !l.in_proj_bias.empty();
  has.conv_bias = !l.conv_bias.empty(), has.x_proj_bias = !l.x_proj_bias.empty();
  has.out_proj_bias = !l.out_proj_bias.empty(), has.a_log = !l.a_log.empty(), has.d = !l.d.empty();
  has.norm_f_bias = !w->norm_f_bias.empty(), has.head = !w->head.empty();
  w->config.head_widths.clear();
  for (const MambaHead& head : w->heads) {
    w->config.head_widths.push_back(static_cast<std::int64_t>(head.hidden_bias.size()));
  }
}

}  // namespace

core::PolicyWeights described(MambaWeights w) {
  describe_weights(&w);
  core::mamba1::Description made = core::mamba1::describe(w.config);
  made.policy.values = core::mamba1::first_values(made);
  const auto at = [&made](core::WeightId id) { return &made.policy.values[static_cast<std::size_t>(id)]; };
  const auto put = [&at](core::WeightId id, const MambaValues& values) {
    if (id != core::kNone) at(id)->assign(values.begin(), values.end());
  };
  const core::mamba1::Weights& ids = made.weights;
  put(ids.input_proj, w.input_proj), put(ids.input_proj_bias, w.input_proj_bias);
  put(ids.norm_f, w.norm_f), put(ids.norm_f_bias, w.norm_f_bias);
  if (!w.heads.empty()) {
    put_heads(w, at(ids.end.hidden), at(ids.end.hidden_bias), at(ids.end.head), at(ids.end.head_bias));
  } else {
    put(ids.end.head, w.head), put(ids.end.head_bias, w.head_bias);
  }
  for (std::size_t i = 0; i < w.layers.size(); ++i) {
    const core::mamba1::LayerWeights& to = ids.layers[i];
    const MambaLayer& l = w.layers[i];
    put(to.norm, l.norm), put(to.norm_bias, l.norm_bias);
    put(to.in_proj, l.in_proj), put(to.in_proj_bias, l.in_proj_bias);
    put(to.conv, l.conv), put(to.conv_bias, l.conv_bias);
    put(to.x_proj, l.x_proj), put(to.x_proj_bias, l.x_proj_bias);
    put(to.dt_proj, l.dt_proj), put(to.dt_proj_bias, l.dt_proj_bias);
    put(to.a_log, l.a_log), put(to.d, l.d);
    put(to.out_proj, l.out_proj), put(to.out_proj_bias, l.out_proj_bias);
  }
  core::derive(made.policy.network(), &made.policy.values);
  made.policy.fingerprint = w.fingerprint;
  return std::move(made.policy);
}

std::string fact(const core::PolicyConfig& config, const std::string& name) {
  for (const auto& [key, value] : config.facts) {
    if (key != name) continue;
    if (const auto* const text = std::get_if<std::string>(&value)) return *text;
    if (const auto* const number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  }
  return "";
}

}  // namespace exphil::test
