// From a network back to Mamba's names.
#include <stdexcept>

#include "support/mamba.hpp"

namespace exphil::test {
namespace {

using core::Block;
using core::Convolution;
using core::Network;
using core::Norm;
using core::Phase;
using core::PolicyConfig;
using core::Product;
using core::SelectiveScan;
using core::Softplus;
using core::mamba1::Config;
using core::mamba1::InputDt;

[[noreturn]] void other_trunk(const PolicyConfig& config) {
  throw std::invalid_argument("a policy of the trunk " + config.trunk + " has no names of Mamba's");
}

// The n-th phase of this kind in the block; null where there are fewer.
template <class Kind>
const Kind* nth(const Block& block, int n) {
  for (const Phase& phase : block) {
    const auto* const found = std::get_if<Kind>(&phase);
    if (found != nullptr && n-- == 0) return found;
  }
  return nullptr;
}

LayerIds layer_ids(const PolicyConfig& config, const Block& layer) {
  const auto* const norm = nth<Norm>(layer, 0);
  const auto* const conv = nth<Convolution>(layer, 0);
  const auto* const scan = nth<SelectiveScan>(layer, 0);
  const auto* const x = nth<Product>(layer, 0);
  const auto* const projection = nth<Product>(layer, 2);
  const auto* const dt = nth<Product>(layer, 3);
  const auto* const out = nth<Product>(layer, 4);
  const auto* const softplus = nth<Softplus>(layer, 0);
  if (norm == nullptr || conv == nullptr || scan == nullptr || out == nullptr) other_trunk(config);
  return {norm->weight,
          norm->bias,
          x->weight,
          x->bias,
          conv->weight,
          conv->bias,
          projection->weight,
          projection->bias,
          dt->weight,
          softplus != nullptr ? softplus->bias : scan->dt_bias,
          scan->a,
          scan->d,
          out->weight,
          out->bias};
}

void read_spec(const Network& network, const Block& layer, Config* c) {
  const auto* const norm = nth<Norm>(layer, 0);
  const auto* const scan = nth<SelectiveScan>(layer, 0);
  c->norm_epsilon = norm->epsilon;
  c->spec.norm = norm->kind;
  c->spec.input_projection = nth<Product>(network.input, 0) != nullptr;
  c->spec.final_norm = nth<Norm>(network.output, 0) != nullptr;
  c->spec.input_dt = scan->input_dt ? InputDt::mean : InputDt::per_channel;
  c->spec.dt_min = scan->lowest, c->spec.dt_max = scan->highest;
  c->spec.chunk_size = scan->chunk_size;
}

}  // namespace

Form form_of(const PolicyConfig& config) {
  if (config.trunk != "mamba1" || config.network.layers.empty()) other_trunk(config);
  const Network& n = config.network;
  const Block& layer = n.layers.front();
  Form form;
  Config& c = form.config;
  for (const Block& block : n.layers) form.ids.layers.push_back(layer_ids(config, block));
  c.d_input = config.d_input, c.d_output = config.d_output;
  c.d_model = n.size_of(n.hidden), c.n_layer = config.n_layer();
  const auto* const scan = nth<SelectiveScan>(layer, 0);
  c.d_inner = scan->x.size, c.d_state = scan->b.size;
  c.d_conv = nth<Convolution>(layer, 0)->taps;
  c.dt_rank = nth<Product>(layer, 3)->in.size;
  c.groups = config.groups, c.spec.window = config.window;
  read_spec(n, layer, &c);
  if (const auto* const input = nth<Product>(n.input, 0)) {
    form.ids.input_proj = input->weight, form.ids.input_proj_bias = input->bias;
  }
  if (const auto* const norm = nth<Norm>(n.output, 0)) {
    form.ids.norm_f = norm->weight, form.ids.norm_f_bias = norm->bias;
  }
  const auto *const first = nth<Product>(n.output, 0), *const second = nth<Product>(n.output, 1);
  if (second != nullptr) {
    form.ids.hidden = first->weight, form.ids.hidden_bias = first->bias;
    form.head_width = first->out.size;
  }
  if (const Product* const head = second != nullptr ? second : first) {
    form.ids.head = head->weight, form.ids.head_bias = head->bias;
  }
  return form;
}

}  // namespace exphil::test
