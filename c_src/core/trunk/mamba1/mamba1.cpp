#include "core/trunk/mamba1/mamba1.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/hash.hpp"
#include "core/trunk/builder.hpp"
#include "core/trunk/edifice.hpp"
#include "core/trunk/state_spaces.hpp"

namespace exphil::core::mamba1 {

namespace {

class Describing {
 public:
  explicit Describing(const Config& config) : c_(config) {}

  Description run() {
    vectors();
    input();
    for (std::int64_t i = 0; i < c_.n_layer; ++i) b_.state("ssm", i, c_.d_inner, c_.d_state);
    for (std::int64_t i = 0; i < c_.n_layer; ++i) b_.state("conv", i, c_.d_inner, c_.d_conv - 1);
    for (std::int64_t i = 0; i < c_.n_layer; ++i) layer(i);
    output();
    check(n_);
    Description made;
    made.policy.config = config();
    made.weights = std::move(w_);
    return made;
  }

 private:
  void vectors() {
    n_.frame = b_.vector("frame", c_.d_input);
    n_.hidden = b_.vector("hidden", c_.d_model);
    normed_ = b_.vector("normed", c_.d_model);
    x_ = b_.vector("x", c_.d_inner), z_ = b_.vector("z", c_.d_inner), u_ = b_.vector("u", c_.d_inner);
    projected_ = b_.vector("projected", c_.dt_rank + 2 * c_.d_state);
    dt_ = b_.vector("dt", c_.d_inner);
    if (by_mean()) active_dt_ = b_.vector("active_dt", c_.d_inner), mean_dt_ = b_.vector("mean_dt", 1);
    y_ = b_.vector("y", c_.d_inner);
    if (c_.spec.final_norm) final_ = b_.vector("final", c_.d_model);
  }
  bool by_mean() const { return c_.spec.input_dt == InputDt::mean; }
  Span all(VectorId id) const { return b_.all(id); }

  void input() {
    if (!c_.spec.input_projection) {
      n_.input = {Copy{all(n_.frame), all(n_.hidden)}};
      return;
    }
    const Product product = b_.product(all(n_.frame), all(n_.hidden), "input_proj", true);
    w_.input_proj = product.weight, w_.input_proj_bias = product.bias;
    n_.input = {product};
  }

  void layer(std::int64_t index) {
    const std::string of = "layer " + std::to_string(index) + "'s ";
    const Norm norm =
        b_.norm(all(n_.hidden), all(normed_), of + "norm", c_.spec.norm, c_.norm_epsilon, c_.has.norm_bias);
    const Product x = b_.product(all(normed_), all(x_), of + "in_proj", c_.has.in_proj_bias, 2 * c_.d_inner);
    Product z = x;
    z.out = all(z_), z.first_row = c_.d_inner;
    Convolution conv{all(x_), all(u_)};
    conv.weight = b_.weight(of + "conv", c_.d_inner, c_.d_conv);
    if (c_.has.conv_bias) conv.bias = b_.weight(of + "conv's bias", 1, c_.d_inner);
    conv.taps = c_.d_conv, conv.state = static_cast<StateId>(c_.n_layer + index);
    const Product projection = b_.product(all(u_), all(projected_), of + "x_proj", c_.has.x_proj_bias);
    const Product dt = b_.product({projected_, 0, c_.dt_rank}, all(dt_), of + "dt_proj", false);
    Block block = {norm, x, conv, z, projection, dt};
    LayerWeights w = {norm.weight,
                      norm.bias,
                      x.weight,
                      x.bias,
                      conv.weight,
                      conv.bias,
                      projection.weight,
                      projection.bias,
                      dt.weight,
                      kNone,
                      kNone,
                      kNone,
                      kNone,
                      kNone,
                      kNone};
    scan(of, static_cast<StateId>(index), &w, &block);
    Product out = b_.product(all(y_), all(n_.hidden), of + "out_proj", c_.has.out_proj_bias);
    out.adds = true;
    w.out_proj = out.weight, w.out_proj_bias = out.bias;
    block.emplace_back(out);
    n_.layers.push_back(std::move(block));
    w_.layers.push_back(w);
  }

  // dt_proj's bias is added where dt is activated: by the scan, or before it, where its mean is needed.
  void scan(const std::string& of, StateId state, LayerWeights* w, Block* block) {
    w->dt_proj_bias = b_.weight(of + "dt_proj's bias", 1, c_.d_inner);
    SelectiveScan scan;
    scan.x = all(u_), scan.z = all(z_), scan.out = all(y_);
    scan.b = {projected_, c_.dt_rank, c_.d_state}, scan.c = {projected_, c_.dt_rank + c_.d_state, c_.d_state};
    scan.chunk_size = c_.spec.chunk_size, scan.state = state;
    scan.lowest = c_.spec.dt_min, scan.highest = c_.spec.dt_max;
    if (by_mean()) {
      block->emplace_back(Softplus{all(dt_), all(active_dt_), w->dt_proj_bias, scan.lowest, scan.highest});
      block->emplace_back(Mean{all(active_dt_), all(mean_dt_)});
      scan.dt = all(active_dt_), scan.input_dt = all(mean_dt_), scan.activates = false;
    } else {
      scan.dt = all(dt_), scan.dt_bias = w->dt_proj_bias;
    }
    if (c_.has.a_log) w->a_log = b_.weight(of + "A_log", c_.d_inner, c_.d_state);
    scan.a = w->a = b_.weight(of + "A", c_.d_inner, c_.d_state);
    n_.weights.back().negative_exp_of = w->a_log;
    if (c_.has.d) scan.d = w->d = b_.weight(of + "D", 1, c_.d_inner);
    block->emplace_back(scan);
  }

  void output() {
    Span final = all(n_.hidden);
    if (c_.spec.final_norm) {
      const Norm norm =
          b_.norm(final, all(final_), "norm_f", c_.spec.norm, c_.norm_epsilon, c_.has.norm_f_bias);
      w_.norm_f = norm.weight, w_.norm_f_bias = norm.bias;
      n_.output.emplace_back(norm);
      final = norm.out;
    }
    const std::int64_t width = std::accumulate(c_.head_widths.begin(), c_.head_widths.end(), std::int64_t{0});
    w_.end = b_.head(final, width, c_.d_output, c_.has.head);
  }

  PolicyConfig config() {
    PolicyConfig config;
    config.trunk = "mamba1";
    config.d_input = c_.d_input, config.d_output = c_.d_output;
    config.network = std::move(n_);
    config.products = products_of(config.network);
    config.window = c_.spec.window;
    config.groups = c_.groups;
    config.state_signature = {c_.n_layer, c_.d_inner, c_.d_state, c_.d_conv};
    config.facts = {{"d_model", c_.d_model},
                    {"d_inner", c_.d_inner},
                    {"d_state", c_.d_state},
                    {"d_conv", c_.d_conv},
                    {"dt_rank", c_.dt_rank},
                    {"norm_epsilon", static_cast<double>(c_.norm_epsilon)},
                    {"chunk_size", c_.spec.chunk_size > 0 ? Fact(c_.spec.chunk_size) : Fact()},
                    {"dialect", dialect_name(c_.spec.dialect)},
                    {"dt", dt_name(c_.spec.input_dt)}};
    config.identity = {hex(hash64(&c_.norm_epsilon, sizeof c_.norm_epsilon))};
    if (c_.spec.dialect != Dialect::state_spaces) {
      const bool decays = c_.spec.window > 1 && c_.spec.window <= c_.spec.chunk_size;
      for (const char* part :
           {dialect_name(c_.spec.dialect), dt_name(c_.spec.input_dt), decays ? "decays_input" : ""}) {
        config.identity.emplace_back(part);
      }
    }
    return config;
  }

  const Config& c_;
  NetworkBuilder b_;
  Network& n_ = b_.network;
  Weights w_;
  VectorId normed_ = kNone, x_ = kNone, z_ = kNone, u_ = kNone, projected_ = kNone, dt_ = kNone;
  VectorId active_dt_ = kNone, mean_dt_ = kNone, y_ = kNone, final_ = kNone;
};

bool has_names(const TensorMap& tensors) {
  return has_mixer_tensor(tensors, "x_proj.weight");
}

PolicyWeights load(const Checkpoint& file, const PolicyLoadOptions& options) {
  return has_edifices_names(file) ? load_edifice(file, options) : load_state_spaces(file, options);
}

}  // namespace

Description describe(const Config& config) {
  return Describing(config).run();
}

PolicyValues<float> first_values(const Description& description) {
  const Network& network = description.policy.network();
  PolicyValues<float> values = zeros_of<float>(network);
  for (const LayerWeights& w : description.weights.layers) {
    if (w.a_log != kNone) continue;
    const std::int64_t d_state = network.weight(w.a).columns;
    std::vector<float>& a = values[static_cast<std::size_t>(w.a)];
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = -static_cast<float>(static_cast<std::int64_t>(i) % d_state + 1);
    }
  }
  return values;
}

PolicyWeights read(const Checkpoint& file, CheckpointReader& reader, Description description) {
  require_parameters(reader, description.policy.parameters);
  description.policy.values = first_values(description);
  read_parameters(reader, &description.policy);
  description.policy.fingerprint = weights_fingerprint(file.tensors(), description.policy.config.identity);
  return std::move(description.policy);
}

Trunk trunk() {
  return {"mamba1", {"mamba", "mamba_ssd"}, {"mamba", "mamba_2", "mamba_ssd"}, has_names,
          load,     initial_weights};
}

}  // namespace exphil::core::mamba1
