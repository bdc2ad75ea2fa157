#include "core/trunk/mamba1/state_spaces.hpp"

namespace exphil::core::mamba1 {

namespace {

void add_layer(const std::string& layer, const Config& c, Layer& w, const Naming& naming,
               std::vector<NamedTensor>* list) {
  const std::string mixer = layer + "mixer.";
  const Shape inner{c.d_inner}, state{c.d_inner, c.d_state};
  const std::int64_t projected = c.dt_rank + 2 * c.d_state;
  const std::vector<NamedTensor> always = {
      {layer + "norm.weight", {c.d_model}, "{d_model}", &w.norm, Start::ones},
      {mixer + "in_proj.weight",
       {2 * c.d_inner, c.d_model},
       "{2 d_inner, d_model}",
       &w.in_proj,
       Start::uniform,
       c.d_model},
      {mixer + "conv1d.weight",
       {c.d_inner, 1, c.d_conv},
       "{d_inner, 1, d_conv}",
       &w.conv,
       Start::uniform,
       c.d_conv},
      {mixer + "x_proj.weight",
       {projected, c.d_inner},
       "{dt_rank + 2 d_state, d_inner}",
       &w.x_proj,
       Start::uniform,
       c.d_inner},
      {mixer + "dt_proj.weight",
       {c.d_inner, c.dt_rank},
       "{d_inner, dt_rank}",
       &w.dt_proj,
       Start::uniform,
       c.dt_rank},
      {mixer + "dt_proj.bias", inner, "{d_inner}", &w.dt_proj_bias, Start::dt_bias},
      {mixer + "A_log", state, "{d_inner, d_state}", &w.a_log, Start::counts},
      {mixer + "D", inner, "{d_inner}", &w.d, Start::ones},
      {mixer + "out_proj.weight",
       {c.d_model, c.d_inner},
       "{d_model, d_inner}",
       &w.out_proj,
       Start::residual,
       c.d_inner}};
  list->insert(list->end(), always.begin(), always.end());
  if (naming.conv_bias)
    list->push_back({mixer + "conv1d.bias", inner, "{d_inner}", &w.conv_bias, Start::uniform, c.d_conv});
  if (naming.projection_bias) {
    list->push_back({mixer + "in_proj.bias", {2 * c.d_inner}, "{2 d_inner}", &w.in_proj_bias, Start::zeros});
    list->push_back({mixer + "out_proj.bias", {c.d_model}, "{d_model}", &w.out_proj_bias, Start::zeros});
  }
}

}  // namespace

std::vector<NamedTensor> state_spaces_tensors(Weights* weights, const Naming& naming) {
  const Config& c = weights->config;
  std::vector<NamedTensor> list = {
      {"input_proj.weight",
       {c.d_model, c.d_input},
       "{d_model, d_input}",
       &weights->input_proj,
       Start::uniform,
       c.d_input},
      {"input_proj.bias", {c.d_model}, "{d_model}", &weights->input_proj_bias, Start::zeros}};
  for (std::size_t i = 0; i < weights->layers.size(); ++i) {
    add_layer(naming.prefix + "layers." + std::to_string(i) + ".", c, weights->layers[i], naming, &list);
  }
  list.push_back({naming.prefix + "norm_f.weight", {c.d_model}, "{d_model}", &weights->norm_f, Start::ones});
  list.push_back({"head.weight",
                  {c.d_output, c.d_model},
                  "{d_output, d_model}",
                  &weights->head,
                  Start::uniform,
                  c.d_model});
  list.push_back({"head.bias", {c.d_output}, "{d_output}", &weights->head_bias, Start::zeros});
  return list;
}

}  // namespace exphil::core::mamba1
