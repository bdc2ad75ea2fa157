#include "core/trunk/gated/gated.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/limits.hpp"
#include "core/trunk/builder.hpp"
#include "core/trunk/edifice.hpp"
#include "core/trunk/gated/initial_state.hpp"
#include "core/trunk/gated/sizes.hpp"
#include "core/trunk/initial.hpp"

namespace exphil::core::gated {

namespace {

using formulas::Cell;

class Loader {
 public:
  Loader(const Checkpoint& file, const PolicyLoadOptions& options)
      : file_(file),
        stated_(file),
        names_(*names_of(stated_.architecture())),
        tensors_(stated_.relevant()),
        reader_(tensors_, {"path", file.name(), std::string("a policy of ") + names_.architecture},
                options.check_finite),
        recurrent_(formulas::recurrent(names_.cell)),
        // Edifice's norms of GRU and LSTM have an epsilon of their own.
        epsilon_(norm_epsilon(file, options, recurrent_ ? 1e-6f : 1e-5f)),
        window_(stated_.window(options)) {
    for (const auto& option : options.trunk) {
      fail(ErrorKind::invalid_argument, ":" + option.first, ":", option.first,
           " is not an option of a policy of ", names_.architecture);
    }
  }

  PolicyWeights load() {
    sizes_ = sizes_of(names_, tensors_, reader_);
    heads_ = stated_.heads(reader_, tensors_);
    vectors();
    input();
    for (std::int64_t i = 0; i < sizes_.layers; ++i) {
      b_.state(names_.cell == Cell::lstm ? "h_c" : "h", i, formulas::states_of(names_.cell), sizes_.units);
    }
    for (std::int64_t i = 0; i < sizes_.layers; ++i) layer(i);
    output();
    policy_.config = config();
    policy_.parameters = std::move(parameters_.all);
    check(policy_.network());
    compare_with_build();
    require_parameters(reader_, policy_.parameters);
    policy_.values = zeros_of<float>(policy_.network());
    read_parameters(reader_, &policy_);
    policy_.fingerprint = weights_fingerprint(trained(), policy_.config.identity);
    return std::move(policy_);
  }

 private:
  void compare_with_build() const {
    stated_.compare_ends(sizes_.d_input, heads_);
    stated_.compare("hidden_size", sizes_.units);
    stated_.compare("num_layers", sizes_.layers);
  }

  std::string layer_name(std::int64_t layer) const { return gated::layer_name(names_, layer); }

  // ---- the network ----

  void vectors() {
    n_.frame = b_.vector("frame", sizes_.d_input);
    n_.hidden = b_.vector("hidden", std::max(d_input_first(), sizes_.units));
    normed_ = b_.vector("normed", std::max(d_input_first(), sizes_.units));
    if (recurrent_) before_ = b_.vector("before", sizes_.units);
    for (const char* gate : names_.gates) {
      x_.push_back(b_.vector(std::string("x_") + gate, sizes_.units));
      if (recurrent_) h_.push_back(b_.vector(std::string("h_") + gate, sizes_.units));
    }
    out_ = b_.vector("out", sizes_.units);
  }

  // What the first layer reads: the frame, or what the input projection makes of it.
  std::int64_t d_input_first() const { return sizes_.projects ? sizes_.units : sizes_.d_input; }
  std::int64_t d_input_of(std::int64_t layer) const { return layer == 0 ? d_input_first() : sizes_.units; }

  void input() {
    const Span hidden{n_.hidden, 0, d_input_first()};
    if (!sizes_.projects) {
      n_.input = {Copy{b_.all(n_.frame), hidden}};
      return;
    }
    const Product product = b_.product(b_.all(n_.frame), hidden, "input_projection", true);
    n_.input = {product};
    parameters_.add("input_projection.kernel", {sizes_.d_input, sizes_.units}, "{d_input, units}",
                    product.weight);
    parameters_.add("input_projection.bias", {sizes_.units}, "{units}", product.bias);
  }

  // Of GRU and LSTM a layer begins with the norm of the layer before it.
  std::string norm_name(std::int64_t layer) const {
    if (!recurrent_) return layer < sizes_.layers ? layer_name(layer) + "_norm" : "final_norm";
    return layer == 0 ? "input_ln" : layer_name(layer - 1) + "_ln";
  }

  Norm norm(std::int64_t layer, const Span& in, const Span& out) {
    const std::string name = norm_name(layer);
    const Norm made = b_.norm(in, out, name, NormKind::layer, epsilon_, true);
    parameters_.add(name + ".gamma", {in.size}, "{size}", made.weight);
    parameters_.add(name + ".beta", {in.size}, "{size}", made.bias);
    return made;
  }

  void layer(std::int64_t layer) {
    const std::int64_t size = d_input_of(layer);
    const Span hidden{n_.hidden, 0, size}, normed{normed_, 0, size}, out = b_.all(out_);
    const std::string of = layer_name(layer);
    Block block = {norm(layer, hidden, normed)};
    GatedCell cell;
    cell.cell = names_.cell, cell.out = out, cell.state = static_cast<StateId>(layer);
    const Product x = products(of + "'s gates", normed, x_, true, &cell.x, &block);
    Product h;
    if (recurrent_) {
      block.emplace_back(Recall{b_.all(before_), cell.state});
      h = products(of + "'s recurrent gates", b_.all(before_), h_, has_recurrent_bias(), &cell.h, &block);
    }
    block.emplace_back(cell);
    block.emplace_back(Copy{out, {n_.hidden, 0, sizes_.units}, !recurrent_});
    n_.layers.push_back(std::move(block));
    if (!recurrent_) {
      add_gates(of, size, x);
    } else if (sizes_.fused) {
      add_fused(of, size, x, h);
    } else {
      add_axon(layer, size, x, h);
    }
  }

  // One matrix for the sums of all gates, which have rows of it one after another. Returns one of the
  // products.
  Product products(const std::string& name, const Span& in, const std::vector<VectorId>& gates, bool bias,
                   std::array<Span, formulas::kMaxGates>* sums, Block* block) {
    Product product = b_.product(in, b_.all(gates.front()), name, bias, sizes_.gates);
    for (std::size_t g = 0; g < gates.size(); ++g) {
      (*sums)[g] = product.out = b_.all(gates[g]);
      product.first_row = static_cast<std::int64_t>(g) * sizes_.units;
      block->emplace_back(product);
    }
    return product;
  }

  // Of the n of Axon's GRU alone; those of its other gates are zeros.
  bool has_recurrent_bias() const { return names_.cell == Cell::gru && !sizes_.fused; }

  void output() {
    const Span hidden{n_.hidden, 0, sizes_.units};
    const VectorId final = b_.vector("final", sizes_.units);
    n_.output.emplace_back(norm(sizes_.layers, hidden, b_.all(final)));
    std::int64_t width = 0;
    for (const HeadSize& head : heads_) width += head.width;
    const std::vector<OutputGroup> groups = groups_of(heads_);
    const std::int64_t outputs = heads_.empty() ? sizes_.units : groups.back().first + groups.back().count;
    parameters_.add_heads(heads_, sizes_.units, b_.head(b_.all(final), width, outputs, false));
  }

  // ---- the tensors ----

  void add_gates(const std::string& of, std::int64_t size, const Product& x) {
    for (std::size_t g = 0; g < names_.gates.size(); ++g) {
      const std::string name = of + "_" + names_.gates[g];
      const auto row = static_cast<std::int64_t>(g) * sizes_.units;
      parameters_.add(name + ".kernel", {size, sizes_.units}, "{units, units}", x.weight, row * size);
      parameters_.add(name + ".bias", {sizes_.units}, "{units}", x.bias, row);
    }
  }

  void add_fused(const std::string& of, std::int64_t size, const Product& x, const Product& h) {
    parameters_.add(of + "_input_proj.kernel", {size, sizes_.gates}, "{input, gates * units}", x.weight);
    parameters_.add(of + "_input_proj.bias", {sizes_.gates}, "{gates * units}", x.bias);
    parameters_.add(of + "_fused_scan." + of + "_recurrent_kernel", {sizes_.units, sizes_.gates},
                    "{units, gates * units}", h.weight);
  }

  void add_axon(std::int64_t layer, std::int64_t size, const Product& x, const Product& h) {
    const std::string of = layer_name(layer);
    for (std::size_t g = 0; g < names_.gates.size(); ++g) {
      const std::string gate = names_.gates[g];
      const auto row = static_cast<std::int64_t>(g) * sizes_.units;
      parameters_.add(of + ".input_kernel.wi" + gate, {size, sizes_.units}, "{input, units}", x.weight,
                      row * size);
      parameters_.add(of + ".hidden_kernel.wh" + gate, {sizes_.units, sizes_.units}, "{units, units}",
                      h.weight, row * sizes_.units);
      const bool of_input = has_recurrent_bias() && gate == "n";
      parameters_.add(of + ".bias.b" + (of_input ? "i" : "") + gate, {sizes_.units}, "{units}", x.bias, row);
      if (of_input) parameters_.add(of + ".bias.bh" + gate, {sizes_.units}, "{units}", h.bias, row);
    }
    std::vector<float>& initial = n_.states[static_cast<std::size_t>(layer)].initial;
    for (const char* part : {"h", "c"}) {
      if (*part == 'c' && names_.cell != Cell::lstm) continue;
      const RandomKey key = take_key(of + "_" + part + "_hidden_state.key");
      const std::vector<float> values = initial_state(key, sizes_.units);
      initial.insert(initial.end(), values.begin(), values.end());
    }
  }

  RandomKey take_key(const std::string& name) {
    const TensorView& view = reader_.take_as_it_is(name, Dtype::u32, {2}, "{2}");
    RandomKey key{};
    std::memcpy(key.data(), view.data, sizeof(key));
    constants_.push_back({name, view.dtype, view.shape, {static_cast<const char*>(view.data), sizeof(key)}});
    return key;
  }

  // The tensors without keys, which an update of the weights does not have.
  TensorMap trained() const {
    TensorMap kept = tensors_;
    for (const ConstantTensor& constant : policy_.config.constants) kept.erase(constant.name);
    return kept;
  }

  PolicyConfig config() {
    PolicyConfig config;
    config.trunk = names_.architecture;
    config.d_input = sizes_.d_input, config.d_output = n_.size_of(n_.outs);
    config.groups = groups_of(heads_);
    config.constants = std::move(constants_);
    config.window = window_;
    config.state_signature = {sizes_.layers, sizes_.units, formulas::states_of(names_.cell), 0};
    config.facts = {{"d_model", sizes_.units},
                    {"norm_epsilon", static_cast<double>(epsilon_)},
                    {"layout", std::string(sizes_.fused ? "fused" : "layers")}};
    config.identity = {names_.architecture, hex(hash64(&epsilon_, sizeof epsilon_))};
    for (const ConstantTensor& key : config.constants) {
      config.identity.push_back(hex(hash64(key.bytes.data(), key.bytes.size())));
    }
    config.network = std::move(n_);
    config.products = products_of(config.network);
    return config;
  }

  const Checkpoint& file_;
  const EdificeFile stated_;
  const Names& names_;
  const TensorMap tensors_;
  CheckpointReader reader_;
  const bool recurrent_;
  const float epsilon_;
  const std::int64_t window_;
  Sizes sizes_;
  std::vector<HeadSize> heads_;
  NetworkBuilder b_;
  Network& n_ = b_.network;
  EdificeParameters parameters_;
  std::vector<ConstantTensor> constants_;
  PolicyWeights policy_;
  VectorId normed_ = kNone, before_ = kNone, out_ = kNone;
  std::vector<VectorId> x_, h_;  // of each gate
};

PolicyWeights load(const Checkpoint& file, const PolicyLoadOptions& options) {
  return Loader(file, options).load();
}

std::vector<InitialTensor> initial(SizeReader, const Initializer&) {
  fail(ErrorKind::unsupported, "trunk",
       "fresh weights of GRU, LSTM, minGRU and minLSTM are not made yet; load a checkpoint of one");
}

}  // namespace

std::vector<Trunk> trunks() {
  std::vector<Trunk> all;
  for (const Names& known : all_names()) {
    all.push_back({known.architecture,
                   {known.architecture},
                   {known.architecture},
                   [](const TensorMap&) { return false; },
                   load,
                   initial});
  }
  return all;
}

}  // namespace exphil::core::gated
