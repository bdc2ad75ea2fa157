#include "core/trunk/gated/gated.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/trunk/edifice_loader.hpp"
#include "core/trunk/gated/initial_state.hpp"
#include "core/trunk/initial.hpp"

namespace exphil::core::gated {

namespace {

using formulas::Cell;

// How Edifice names a cell and its tensors. Gates are in the order of kernels/common/cells.cuh.
struct Names {
  const char* architecture;
  Cell cell;
  std::vector<const char*> gates;  // "r" of gru_1.input_kernel.wir; min_gru_1_"gate"
};

const std::vector<Names>& all_names() {
  static const std::vector<Names> all = {{"gru", Cell::gru, {"r", "z", "n"}},
                                         {"lstm", Cell::lstm, {"i", "f", "g", "o"}},
                                         {"min_gru", Cell::min_gru, {"gate", "candidate"}},
                                         {"min_lstm", Cell::min_lstm, {"forget", "input", "candidate"}}};
  return all;
}

// A pointer, because compilers take a reference for one into the argument.
const Names* names_of(const std::string& architecture) {
  return &*std::find_if(all_names().begin(), all_names().end(),
                        [&](const Names& names) { return names.architecture == architecture; });
}

class Loader : private EdificeLoader {
 public:
  // Edifice's norms of GRU and LSTM have an epsilon of their own.
  Loader(const Checkpoint& file, const PolicyLoadOptions& options, const Names& names)
      : EdificeLoader(file, options, std::string(names.architecture) + "_",
                      formulas::recurrent(names.cell) ? 1e-6f : 1e-5f, names.architecture),
        names_(names),
        recurrent_(formulas::recurrent(names_.cell)) {
    for (const auto& option : options.trunk) {
      fail(ErrorKind::invalid_argument, ":" + option.first, ":", option.first,
           " is not an option of a policy of ", names_.architecture);
    }
  }

  PolicyWeights load() {
    infer();
    vectors();
    input();
    for (std::int64_t i = 0; i < layers_; ++i) {
      b_.state(names_.cell == Cell::lstm ? "h_c" : "h", i, formulas::states_of(names_.cell), units_);
    }
    for (std::int64_t i = 0; i < layers_; ++i) layer(i);
    output(norm_name(layers_));
    PolicyConfig made = config(names_.architecture);
    made.state_signature = {layers_, units_, formulas::states_of(names_.cell), 0};
    made.facts.emplace_back("layout", std::string(fused_ ? "fused" : "layers"));
    return read(std::move(made));
  }

 private:
  // ---- sizes ----

  void infer() {
    const std::string first = layer_name(0);
    fused_ = recurrent_ && has_prefix(tensors_, first + "_input_proj.");
    const std::string kernel = !recurrent_ ? first + "_" + names_.gates[0] + ".kernel"
                               : fused_    ? first + "_fused_scan." + first + "_recurrent_kernel"
                                           : first + ".hidden_kernel.wh" + names_.gates[0];
    units_ = reader_.shape(kernel, 2, fused_ ? "{units, gates * units}" : "{units, units}")[0];
    require_limit(units_, kMaxDim, "the number of units", kernel);
    gates_ = formulas::gates_of(names_.cell) * units_;
    infer_ends(recurrent_ ? "input_ln.gamma" : first + "_norm.gamma");
  }

  // ---- the network ----

  void vectors() {
    n_.frame = b_.vector("frame", d_input_);
    n_.hidden = b_.vector("hidden", std::max(d_input_first(), units_));
    normed_ = b_.vector("normed", std::max(d_input_first(), units_));
    if (recurrent_) before_ = b_.vector("before", units_);
    for (const char* gate : names_.gates) {
      x_.push_back(b_.vector(std::string("x_") + gate, units_));
      if (recurrent_) h_.push_back(b_.vector(std::string("h_") + gate, units_));
    }
    out_ = b_.vector("out", units_);
  }

  std::int64_t d_input_of(std::int64_t layer) const { return layer == 0 ? d_input_first() : units_; }

  // Of GRU and LSTM a layer begins with the norm of the layer before it.
  std::string norm_name(std::int64_t layer) const {
    if (!recurrent_) return layer < layers_ ? layer_name(layer) + "_norm" : "final_norm";
    return layer == 0 ? "input_ln" : layer_name(layer - 1) + "_ln";
  }

  void layer(std::int64_t layer) {
    const std::int64_t size = d_input_of(layer);
    const Span hidden{n_.hidden, 0, size}, normed{normed_, 0, size}, out = b_.all(out_);
    const std::string of = layer_name(layer);
    Block block = {norm(norm_name(layer), hidden, normed)};
    GatedCell cell;
    cell.cell = names_.cell, cell.out = out, cell.state = static_cast<StateId>(layer);
    const Product x = products(of + "'s gates", normed, x_, true, &cell.x, &block);
    Product h;
    if (recurrent_) {
      block.emplace_back(Recall{b_.all(before_), cell.state});
      h = products(of + "'s recurrent gates", b_.all(before_), h_, has_recurrent_bias(), &cell.h, &block);
    }
    block.emplace_back(cell);
    block.emplace_back(Copy{out, {n_.hidden, 0, units_}, !recurrent_});
    n_.layers.push_back(std::move(block));
    if (!recurrent_) {
      add_gates(of, size, x);
    } else if (fused_) {
      add_fused(of, size, x, h);
    } else {
      add_axon(layer, size, x, h);
    }
  }

  // One matrix for the sums of all gates. Returns one of the products.
  Product products(const std::string& name, const Span& in, const std::vector<VectorId>& gates, bool bias,
                   std::array<Span, formulas::kMaxGates>* sums, Block* block) {
    std::vector<Span> outs;
    for (const VectorId gate : gates) outs.push_back(b_.all(gate));
    std::copy(outs.begin(), outs.end(), sums->begin());
    return b_.split_product(in, outs, name, bias, block);
  }

  // Of the n of Axon's GRU alone; those of its other gates are zeros.
  bool has_recurrent_bias() const { return names_.cell == Cell::gru && !fused_; }

  // ---- the tensors ----

  void add_gates(const std::string& of, std::int64_t size, const Product& x) {
    for (std::size_t g = 0; g < names_.gates.size(); ++g) {
      const std::string name = of + "_" + names_.gates[g];
      const auto row = static_cast<std::int64_t>(g) * units_;
      parameters_.add(name + ".kernel", {size, units_}, "{units, units}", x.weight, row * size);
      parameters_.add(name + ".bias", {units_}, "{units}", x.bias, row);
    }
  }

  void add_fused(const std::string& of, std::int64_t size, const Product& x, const Product& h) {
    parameters_.add(of + "_input_proj.kernel", {size, gates_}, "{input, gates * units}", x.weight);
    parameters_.add(of + "_input_proj.bias", {gates_}, "{gates * units}", x.bias);
    parameters_.add(of + "_fused_scan." + of + "_recurrent_kernel", {units_, gates_},
                    "{units, gates * units}", h.weight);
  }

  void add_axon(std::int64_t layer, std::int64_t size, const Product& x, const Product& h) {
    const std::string of = layer_name(layer);
    for (std::size_t g = 0; g < names_.gates.size(); ++g) {
      const std::string gate = names_.gates[g];
      const auto row = static_cast<std::int64_t>(g) * units_;
      parameters_.add(of + ".input_kernel.wi" + gate, {size, units_}, "{input, units}", x.weight, row * size);
      parameters_.add(of + ".hidden_kernel.wh" + gate, {units_, units_}, "{units, units}", h.weight,
                      row * units_);
      const bool of_input = has_recurrent_bias() && gate == "n";
      parameters_.add(of + ".bias.b" + (of_input ? "i" : "") + gate, {units_}, "{units}", x.bias, row);
      if (of_input) parameters_.add(of + ".bias.bh" + gate, {units_}, "{units}", h.bias, row);
    }
    std::vector<float>& initial = n_.states[static_cast<std::size_t>(layer)].initial;
    for (const char* part : {"h", "c"}) {
      if (*part == 'c' && names_.cell != Cell::lstm) continue;
      const RandomKey key = take_key(of + "_" + part + "_hidden_state.key");
      const std::vector<float> values = initial_state(key, units_);
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

  const Names& names_;
  const bool recurrent_;
  bool fused_ = false;
  std::int64_t gates_ = 0;
  VectorId normed_ = kNone, before_ = kNone, out_ = kNone;
  std::vector<VectorId> x_, h_;  // of each gate
};

PolicyWeights load(const Checkpoint& file, const PolicyLoadOptions& options) {
  return Loader(file, options, *names_of(EdificeFile(file).architecture())).load();
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
