#include "core/trunk/mamba1/mamba1.hpp"

#include <algorithm>
#include <utility>

#include "core/trunk/mamba1/loaders.hpp"

namespace exphil::core::mamba1 {

namespace {

// Builds the network, and moves each vector of the weights to its id.
class Description {
 public:
  explicit Description(Weights weights) : w_(std::move(weights)), c_(w_.config) {}

  PolicyWeights run() {
    vectors();
    input();
    for (std::int64_t i = 0; i < c_.n_layer; ++i) states("ssm", i, c_.d_state);
    for (std::int64_t i = 0; i < c_.n_layer; ++i) states("conv", i, c_.d_conv - 1);
    for (std::size_t i = 0; i < w_.layers.size(); ++i) layer(i);
    output();
    check(n_);
    tensors();
    return finish();
  }

 private:
  VectorId vector(const char* name, std::int64_t size) {
    n_.vectors.push_back({name, size});
    return static_cast<VectorId>(n_.vectors.size()) - 1;
  }
  void vectors() {
    n_.frame = vector("frame", c_.d_input);
    n_.hidden = vector("hidden", c_.d_model);
    normed_ = vector("normed", c_.d_model);
    x_ = vector("x", c_.d_inner), z_ = vector("z", c_.d_inner), u_ = vector("u", c_.d_inner);
    projected_ = vector("projected", c_.dt_rank + 2 * c_.d_state);
    dt_ = vector("dt", c_.d_inner);
    if (by_mean()) active_dt_ = vector("active_dt", c_.d_inner), mean_dt_ = vector("mean_dt", 1);
    y_ = vector("y", c_.d_inner);
    if (c_.spec.final_norm) final_ = vector("final", c_.d_model);
    for (const Head& head : w_.heads) head_width_ += head.width();
    if (head_width_ > 0) head_hidden_ = vector("head_hidden", head_width_);
    n_.outs = vector("outs", c_.d_output);
  }
  bool by_mean() const { return c_.spec.input_dt == InputDt::mean; }
  Span all(VectorId id) const { return n_.all_of(id); }

  // The id of a weight, whose values are moved there; kNone where there are none.
  WeightId weight(const std::string& name, Values& values, std::int64_t rows, std::int64_t columns) {
    if (values.empty()) return kNone;
    places_.push_back({&values, static_cast<WeightId>(n_.weights.size()), 0, 0, 0});
    return put(name, values, rows, columns);
  }
  WeightId weight(const std::string& name, Values& values) {
    return weight(name, values, 1, static_cast<std::int64_t>(values.size()));
  }
  WeightId put(const std::string& name, Values& values, std::int64_t rows, std::int64_t columns) {
    n_.weights.push_back({name, rows, columns, kNone});
    values_.push_back(std::move(values));
    return static_cast<WeightId>(n_.weights.size()) - 1;
  }

  void states(const char* name, std::int64_t layer, std::int64_t columns) {
    n_.states.push_back({name, layer, c_.d_inner, columns});
  }

  void input() {
    if (!c_.spec.input_projection) {
      n_.input = {Copy{all(n_.frame), all(n_.hidden)}};
      return;
    }
    Product product{all(n_.frame), all(n_.hidden)};
    product.weight = weight("input_proj", w_.input_proj, c_.d_model, c_.d_input);
    product.bias = weight("input_proj's bias", w_.input_proj_bias);
    n_.input = {product};
  }

  void layer(std::size_t index) {
    Layer& w = w_.layers[index];
    const std::string of = "layer " + std::to_string(index) + "'s ";
    Norm norm{all(n_.hidden), all(normed_), c_.spec.norm};
    norm.weight = weight(of + "norm", w.norm), norm.bias = weight(of + "norm's bias", w.norm_bias);
    norm.epsilon = c_.norm_epsilon;
    Product x{all(normed_), all(x_)}, z{all(normed_), all(z_)};
    x.weight = z.weight = weight(of + "in_proj", w.in_proj, 2 * c_.d_inner, c_.d_model);
    x.bias = z.bias = weight(of + "in_proj's bias", w.in_proj_bias);
    z.first_row = c_.d_inner;
    Convolution conv{all(x_), all(u_)};
    conv.weight = weight(of + "conv", w.conv, c_.d_inner, c_.d_conv);
    conv.bias = weight(of + "conv's bias", w.conv_bias);
    conv.taps = c_.d_conv, conv.state = static_cast<StateId>(c_.n_layer) + static_cast<StateId>(index);
    Product projection{all(u_), all(projected_)};
    projection.weight = weight(of + "x_proj", w.x_proj, c_.dt_rank + 2 * c_.d_state, c_.d_inner);
    projection.bias = weight(of + "x_proj's bias", w.x_proj_bias);
    Product dt{{projected_, 0, c_.dt_rank}, all(dt_)};
    dt.weight = weight(of + "dt_proj", w.dt_proj, c_.d_inner, c_.dt_rank);
    Block block = {norm, x, conv, z, projection, dt};
    scan(of, w, static_cast<StateId>(index), &block);
    Product out{all(y_), all(n_.hidden)};
    out.weight = weight(of + "out_proj", w.out_proj, c_.d_model, c_.d_inner);
    out.bias = weight(of + "out_proj's bias", w.out_proj_bias);
    out.adds = true;
    block.emplace_back(out);
    n_.layers.push_back(std::move(block));
  }

  // dt_proj's bias is added where dt is activated: by the scan, or before it, where its mean is needed.
  void scan(const std::string& of, Layer& w, StateId state, Block* block) {
    const WeightId dt_bias = weight(of + "dt_proj's bias", w.dt_proj_bias);
    SelectiveScan scan;
    scan.x = all(u_), scan.z = all(z_), scan.out = all(y_);
    scan.b = {projected_, c_.dt_rank, c_.d_state}, scan.c = {projected_, c_.dt_rank + c_.d_state, c_.d_state};
    scan.chunk_size = c_.spec.chunk_size, scan.state = state;
    if (by_mean()) {
      block->emplace_back(Softplus{all(dt_), all(active_dt_), dt_bias, c_.spec.dt_min, c_.spec.dt_max});
      block->emplace_back(Mean{all(active_dt_), all(mean_dt_)});
      scan.dt = all(active_dt_), scan.input_dt = all(mean_dt_), scan.activates = false;
    } else {
      scan.dt = all(dt_), scan.dt_bias = dt_bias;
    }
    scan.lowest = c_.spec.dt_min, scan.highest = c_.spec.dt_max;
    scan.a = decays(of, w);
    scan.d = weight(of + "D", w.d);
    block->emplace_back(scan);
  }

  // A of each channel: -exp(A_log), or -1, -2, ...
  WeightId decays(const std::string& of, Layer& w) {
    const WeightId log = weight(of + "A_log", w.a_log, c_.d_inner, c_.d_state);
    Values a(static_cast<std::size_t>(c_.d_inner * c_.d_state));
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = -static_cast<float>(static_cast<std::int64_t>(i) % c_.d_state + 1);
    }
    const WeightId id = put(of + "A", a, c_.d_inner, c_.d_state);
    n_.weights.back().negative_exp_of = log;
    return id;
  }

  void output() {
    Span final = all(n_.hidden);
    if (c_.spec.final_norm) {
      Norm norm{final, all(final_), c_.spec.norm};
      norm.weight = weight("norm_f", w_.norm_f), norm.bias = weight("norm_f's bias", w_.norm_f_bias);
      norm.epsilon = c_.norm_epsilon;
      n_.output.emplace_back(norm);
      final = norm.out;
    }
    if (head_width_ > 0) return heads(final);
    if (w_.head.empty()) {
      n_.output.emplace_back(Copy{final, all(n_.outs)});
      return;
    }
    Product head{final, all(n_.outs)};
    head.weight = weight("head", w_.head, c_.d_output, c_.d_model);
    head.bias = weight("head's bias", w_.head_bias);
    n_.output.emplace_back(head);
  }

  void heads(const Span& final) {
    Values hidden, hidden_bias, out(static_cast<std::size_t>(c_.d_output * head_width_)), out_bias;
    std::size_t first_out = 0;
    const auto stride = static_cast<std::size_t>(head_width_);
    const auto next = static_cast<WeightId>(n_.weights.size());
    for (Head& head : w_.heads) {
      const std::size_t first_hidden = hidden_bias.size(), width = head.hidden_bias.size();
      const std::size_t corner = first_out * stride + first_hidden;
      places_.push_back({&head.hidden, next, hidden.size(), 0, 0});
      places_.push_back({&head.hidden_bias, next + 1, first_hidden, 0, 0});
      places_.push_back({&head.out, next + 2, corner, width, stride});
      places_.push_back({&head.out_bias, next + 3, first_out, 0, 0});
      hidden.insert(hidden.end(), head.hidden.begin(), head.hidden.end());
      hidden_bias.insert(hidden_bias.end(), head.hidden_bias.begin(), head.hidden_bias.end());
      for (std::size_t i = 0; i < head.out.size(); ++i)
        out[corner + i / width * stride + i % width] = head.out[i];
      out_bias.insert(out_bias.end(), head.out_bias.begin(), head.out_bias.end());
      first_out += head.out_bias.size();
    }
    Product first{final, all(head_hidden_)}, second{all(head_hidden_), all(n_.outs)};
    first.weight = put("the heads' hidden layers", hidden, head_width_, c_.d_model);
    first.bias = put("the heads' hidden biases", hidden_bias, 1, head_width_);
    first.relu = true;
    second.weight = put("the heads", out, c_.d_output, head_width_);
    second.bias = put("the heads' biases", out_bias, 1, c_.d_output);
    n_.output.emplace_back(first);
    n_.output.emplace_back(second);
  }

  // The checkpoint's tensors by where their vectors are now.
  void tensors() {
    const std::vector<Values*> vectors = vectors_of(w_);
    for (Tensor& tensor : w_.tensors) {
      const Values* const vector = vectors[tensor.vector];
      const auto place = std::find_if(places_.begin(), places_.end(),
                                      [vector](const Place& p) { return p.vector == vector; });
      PolicyParameter parameter;
      parameter.name = std::move(tensor.name), parameter.shape = tensor.shape, parameter.axes = tensor.axes;
      parameter.weight = place->weight, parameter.first = place->first + tensor.first;
      parameter.columns = place->columns, parameter.stride = place->stride;
      parameter.transposed = tensor.transposed;
      parameters_.push_back(std::move(parameter));
    }
  }

  PolicyWeights finish() {
    PolicyWeights made;
    PolicyConfig& config = made.config;
    config.trunk = "mamba1";
    config.d_input = c_.d_input, config.d_output = c_.d_output;
    config.network = std::move(n_);
    config.products = products_of(config.network);
    config.window = c_.spec.window;
    config.groups = c_.groups;
    config.state_signature = {c_.n_layer, c_.d_inner, c_.d_state, c_.d_conv};
    const bool mean = by_mean();
    const auto chunk = c_.spec.chunk_size > 0 ? Fact(c_.spec.chunk_size) : Fact();
    config.facts = {{"d_model", c_.d_model},
                    {"d_inner", c_.d_inner},
                    {"d_state", c_.d_state},
                    {"d_conv", c_.d_conv},
                    {"dt_rank", c_.dt_rank},
                    {"norm_epsilon", static_cast<double>(c_.norm_epsilon)},
                    {"chunk_size", chunk},
                    {"dialect", dialect_name(c_.spec.dialect)},
                    {"dt", std::string(mean ? "mean" : "per_channel")}};
    config.identity = identity_of(c_);
    made.values = std::move(values_);
    made.parameters = std::move(parameters_);
    made.fingerprint = w_.fingerprint;
    derive(config.network, &made.values);
    return made;
  }

  // Where a vector went.
  struct Place {
    const Values* vector;
    WeightId weight;
    std::size_t first, columns, stride;
  };

  Weights w_;
  const Config& c_;
  Network n_;
  PolicyValues<float> values_;
  std::vector<PolicyParameter> parameters_;
  std::vector<Place> places_;
  VectorId normed_ = kNone, x_ = kNone, z_ = kNone, u_ = kNone, projected_ = kNone, dt_ = kNone;
  VectorId active_dt_ = kNone, mean_dt_ = kNone, y_ = kNone, final_ = kNone, head_hidden_ = kNone;
  std::int64_t head_width_ = 0;
};

}  // namespace

std::vector<Values*> vectors_of(Weights& w) {
  std::vector<Values*> all = {&w.input_proj, &w.input_proj_bias, &w.norm_f, &w.norm_f_bias,
                              &w.head,       &w.head_bias};
  for (Layer& l : w.layers) {
    all.insert(all.end(),
               {&l.norm, &l.norm_bias, &l.in_proj, &l.in_proj_bias, &l.conv, &l.conv_bias, &l.x_proj,
                &l.x_proj_bias, &l.dt_proj, &l.dt_proj_bias, &l.a_log, &l.d, &l.out_proj, &l.out_proj_bias});
  }
  for (Head& h : w.heads) all.insert(all.end(), {&h.hidden, &h.hidden_bias, &h.out, &h.out_bias});
  return all;
}

Weights zero_weights(const Config& c) {
  const auto zeros = [](std::int64_t rows, std::int64_t columns = 1) {
    return Values(static_cast<std::size_t>(rows * columns));
  };
  Layer layer;
  layer.norm = zeros(c.d_model);
  layer.in_proj = zeros(2 * c.d_inner, c.d_model);
  layer.conv = zeros(c.d_inner, c.d_conv);
  layer.x_proj = zeros(c.dt_rank + 2 * c.d_state, c.d_inner);
  layer.dt_proj = zeros(c.d_inner, c.dt_rank), layer.dt_proj_bias = zeros(c.d_inner);
  layer.a_log = zeros(c.d_inner, c.d_state), layer.d = zeros(c.d_inner);
  layer.out_proj = zeros(c.d_model, c.d_inner);
  Weights w;
  w.config = c;
  w.input_proj = zeros(c.d_model, c.d_input), w.input_proj_bias = zeros(c.d_model);
  w.layers.assign(static_cast<std::size_t>(c.n_layer), layer);
  w.norm_f = zeros(c.d_model);
  w.head = zeros(c.d_output, c.d_model), w.head_bias = zeros(c.d_output);
  return w;
}

PolicyWeights describe(Weights weights) {
  return Description(std::move(weights)).run();
}

}  // namespace exphil::core::mamba1
