#include "core/trunk/builder.hpp"

namespace exphil::core {

VectorId NetworkBuilder::vector(const std::string& name, std::int64_t size) {
  network.vectors.push_back({name, size});
  return static_cast<VectorId>(network.vectors.size()) - 1;
}

WeightId NetworkBuilder::weight(const std::string& name, std::int64_t rows, std::int64_t columns) {
  network.weights.push_back({name, rows, columns, kNone});
  return static_cast<WeightId>(network.weights.size()) - 1;
}

StateId NetworkBuilder::state(const std::string& name, std::int64_t layer, std::int64_t rows,
                              std::int64_t columns) {
  network.states.push_back({name, layer, rows, columns, {}});
  return static_cast<StateId>(network.states.size()) - 1;
}

Product NetworkBuilder::product(const Span& in, const Span& out, const std::string& name, bool bias) {
  return product(in, out, name, bias, out.size);
}

Product NetworkBuilder::product(const Span& in, const Span& out, const std::string& name, bool bias,
                                std::int64_t rows) {
  Product made{in, out};
  made.weight = weight(name, rows, in.size);
  if (bias) made.bias = weight(name + "'s bias", 1, rows);
  return made;
}

Product NetworkBuilder::split_product(const Span& in, const std::vector<Span>& outs, const std::string& name,
                                      bool bias, Block* block) {
  std::int64_t rows = 0;
  for (const Span& out : outs) rows += out.size;
  Product made = product(in, outs.front(), name, bias, rows);
  rows = 0;
  for (const Span& out : outs) {
    made.out = out, made.first_row = rows;
    block->emplace_back(made);
    rows += out.size;
  }
  return made;
}

Norm NetworkBuilder::norm(const Span& in, const Span& out, const std::string& name, NormKind kind,
                          float epsilon, bool bias) {
  Norm made{in, out, kind};
  made.weight = weight(name, 1, in.size);
  if (bias) made.bias = weight(name + "'s bias", 1, in.size);
  made.epsilon = epsilon;
  return made;
}

NetworkBuilder::Head NetworkBuilder::head(const Span& hidden, std::int64_t width, std::int64_t d_output,
                                          bool linear) {
  Head made;
  Span last = hidden;
  if (width > 0) {
    Product first = product(hidden, all(vector("head_hidden", width)), "the heads' hidden layers", true);
    first.relu = true;
    made.hidden = first.weight, made.hidden_bias = first.bias;
    network.output.emplace_back(first);
    last = first.out;
  }
  network.outs = vector("outs", d_output);
  if (width > 0 || linear) {
    const Product head = product(last, all(network.outs), width > 0 ? "the heads" : "head", true);
    made.head = head.weight, made.head_bias = head.bias;
    network.output.emplace_back(head);
  } else {
    network.output.emplace_back(Copy{last, all(network.outs)});
  }
  return made;
}

}  // namespace exphil::core
