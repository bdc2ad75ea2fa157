#include "core/trunk/gated/description.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/trunk/builder.hpp"

namespace exphil::core::gated {

using formulas::Cell;

const std::vector<Names>& all_names() {
  static const auto* const all =  // never destroyed
      new std::vector<Names>{{"gru", Cell::gru, {"r", "z", "n"}},
                             {"lstm", Cell::lstm, {"i", "f", "g", "o"}},
                             {"min_gru", Cell::min_gru, {"gate", "candidate"}},
                             {"min_lstm", Cell::min_lstm, {"forget", "input", "candidate"}}};
  return *all;
}

const Names* names_of(const std::string& architecture) {
  return &*std::find_if(all_names().begin(), all_names().end(),
                        [&](const Names& names) { return names.architecture == architecture; });
}

std::string Names::layer(std::int64_t layer) const {
  return std::string(architecture) + "_" + std::to_string(layer + 1);
}

namespace {

class Describer {
 public:
  explicit Describer(const Sizes& sizes) : s_(sizes), names_(*sizes.names), recurrent_(names_.recurrent()) {}

  Description describe() {
    vectors();
    input();
    for (std::int64_t i = 0; i < s_.layers; ++i) {
      b_.state(names_.cell == Cell::lstm ? "h_c" : "h", i, formulas::states_of(names_.cell), s_.units);
    }
    for (std::int64_t i = 0; i < s_.layers; ++i) layer(i);
    output();
    return {std::move(n_), std::move(parameters_.all), std::move(keys_)};
  }

 private:
  void vectors() {
    n_.frame = b_.vector("frame", s_.d_input);
    n_.hidden = b_.vector("hidden", std::max(d_input_first(), s_.units));
    normed_ = b_.vector("normed", std::max(d_input_first(), s_.units));
    if (recurrent_) before_ = b_.vector("before", s_.units);
    for (const char* gate : names_.gates) {
      x_.push_back(b_.vector(std::string("x_") + gate, s_.units));
      if (recurrent_) h_.push_back(b_.vector(std::string("h_") + gate, s_.units));
    }
    out_ = b_.vector("out", s_.units);
  }

  // What the first layer reads: the frame, or what the input projection makes of it.
  std::int64_t d_input_first() const { return s_.projects ? s_.units : s_.d_input; }
  std::int64_t d_input_of(std::int64_t layer) const { return layer == 0 ? d_input_first() : s_.units; }

  void input() {
    const Span hidden{n_.hidden, 0, d_input_first()};
    if (!s_.projects) {
      n_.input = {Copy{b_.all(n_.frame), hidden}};
      return;
    }
    const Product product = b_.product(b_.all(n_.frame), hidden, "input_projection", true);
    n_.input = {product};
    parameters_.add("input_projection.kernel", {s_.d_input, s_.units}, "{d_input, units}", product.weight);
    parameters_.add("input_projection.bias", {s_.units}, "{units}", product.bias);
  }

  // Of GRU and LSTM a layer begins with the norm of the layer before it.
  std::string norm_name(std::int64_t layer) const {
    if (!recurrent_) return layer < s_.layers ? names_.layer(layer) + "_norm" : "final_norm";
    return layer == 0 ? "input_ln" : names_.layer(layer - 1) + "_ln";
  }

  Norm norm(std::int64_t layer, const Span& in, const Span& out) {
    const std::string name = norm_name(layer);
    const Norm made = b_.norm(in, out, name, NormKind::layer, s_.epsilon, true);
    parameters_.add(name + ".gamma", {in.size}, "{size}", made.weight);
    parameters_.add(name + ".beta", {in.size}, "{size}", made.bias);
    return made;
  }

  void layer(std::int64_t layer) {
    const std::int64_t size = d_input_of(layer);
    const Span hidden{n_.hidden, 0, size}, normed{normed_, 0, size}, out = b_.all(out_);
    const std::string of = names_.layer(layer);
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
    block.emplace_back(Copy{out, {n_.hidden, 0, s_.units}, !recurrent_});
    n_.layers.push_back(std::move(block));
    keys_.emplace_back();
    if (!recurrent_) {
      add_gates(of, size, x);
    } else if (s_.fused) {
      add_fused(of, size, x, h);
    } else {
      add_axon(of, size, x, h);
    }
  }

  // One matrix for the sums of all gates, which have rows of it one after another. Returns one of the
  // products.
  Product products(const std::string& name, const Span& in, const std::vector<VectorId>& gates, bool bias,
                   std::array<Span, formulas::kMaxGates>* sums, Block* block) {
    Product product = b_.product(in, b_.all(gates.front()), name, bias, s_.gates());
    for (std::size_t g = 0; g < gates.size(); ++g) {
      (*sums)[g] = product.out = b_.all(gates[g]);
      product.first_row = static_cast<std::int64_t>(g) * s_.units;
      block->emplace_back(product);
    }
    return product;
  }

  // Of the n of Axon's GRU alone; those of its other gates are zeros.
  bool has_recurrent_bias() const { return names_.cell == Cell::gru && !s_.fused; }

  void output() {
    const Span hidden{n_.hidden, 0, s_.units};
    const VectorId final = b_.vector("final", s_.units);
    n_.output.emplace_back(norm(s_.layers, hidden, b_.all(final)));
    parameters_.add_outputs(b_.all(final), s_.heads, s_.d_output, &b_);
  }

  // ---- the tensors ----

  void add_gates(const std::string& of, std::int64_t size, const Product& x) {
    for (std::size_t g = 0; g < names_.gates.size(); ++g) {
      const std::string name = of + "_" + names_.gates[g];
      const auto row = static_cast<std::int64_t>(g) * s_.units;
      parameters_.add(name + ".kernel", {size, s_.units}, "{units, units}", x.weight, row * size);
      parameters_.add(name + ".bias", {s_.units}, "{units}", x.bias, row);
    }
  }

  void add_fused(const std::string& of, std::int64_t size, const Product& x, const Product& h) {
    parameters_.add(of + "_input_proj.kernel", {size, s_.gates()}, "{input, gates * units}", x.weight);
    parameters_.add(of + "_input_proj.bias", {s_.gates()}, "{gates * units}", x.bias);
    parameters_.add(of + "_fused_scan." + of + "_recurrent_kernel", {s_.units, s_.gates()},
                    "{units, gates * units}", h.weight);
  }

  void add_axon(const std::string& of, std::int64_t size, const Product& x, const Product& h) {
    const std::int64_t units = s_.units;
    for (std::size_t g = 0; g < names_.gates.size(); ++g) {
      const std::string gate = names_.gates[g];
      const auto row = static_cast<std::int64_t>(g) * units;
      parameters_.add(of + ".input_kernel.wi" + gate, {size, units}, "{input, units}", x.weight, row * size);
      parameters_.add(of + ".hidden_kernel.wh" + gate, {units, units}, "{units, units}", h.weight,
                      row * units);
      const bool of_input = has_recurrent_bias() && gate == "n";
      parameters_.add(of + ".bias.b" + (of_input ? "i" : "") + gate, {units}, "{units}", x.bias, row);
      if (of_input) parameters_.add(of + ".bias.bh" + gate, {units}, "{units}", h.bias, row);
    }
    keys_.back().push_back(of + "_h_hidden_state.key");
    if (names_.cell == Cell::lstm) keys_.back().push_back(of + "_c_hidden_state.key");
  }

  const Sizes& s_;
  const Names& names_;
  const bool recurrent_;
  NetworkBuilder b_;
  Network& n_ = b_.network;
  EdificeParameters parameters_;
  std::vector<std::vector<std::string>> keys_;
  VectorId normed_ = kNone, before_ = kNone, out_ = kNone;
  std::vector<VectorId> x_, h_;  // of each gate
};

}  // namespace

Description describe(const Sizes& sizes) {
  return Describer(sizes).describe();
}

}  // namespace exphil::core::gated
