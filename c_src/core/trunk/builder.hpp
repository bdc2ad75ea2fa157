// What the trunks put their networks together with. Used in core/trunk only; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/policy/network.hpp"

namespace exphil::core {

class NetworkBuilder {
 public:
  Network network;

  VectorId vector(const std::string& name, std::int64_t size);
  Span all(VectorId id) const { return network.all_of(id); }
  WeightId weight(const std::string& name, std::int64_t rows, std::int64_t columns);
  StateId state(const std::string& name, std::int64_t layer, std::int64_t rows, std::int64_t columns);

  // With a weight `name` and, where there is one, its bias: "`name`'s bias".
  Product product(const Span& in, const Span& out, const std::string& name, bool bias);
  // `rows`: of a weight of which several products have rows.
  Product product(const Span& in, const Span& out, const std::string& name, bool bias, std::int64_t rows);
  // One matrix for several outputs, whose rows are one after another; a product for each, appended to the
  // block. Returns one of them.
  Product split_product(const Span& in, const std::vector<Span>& outs, const std::string& name, bool bias,
                        Block* block);
  Norm norm(const Span& in, const Span& out, const std::string& name, NormKind kind, float epsilon,
            bool bias);

  // Ends the policy: hidden, with its final norm, becomes the outputs. Several heads of two layers, which
  // read the same hidden state, are one product with all their hidden layers, {width, d_model}, and one with
  // a block for each, {d_output, width}, whose zeros cost less than products of their own. Without a width it
  // is one linear map, or the hidden state itself.
  struct Head {
    WeightId hidden = kNone, hidden_bias = kNone, head = kNone, head_bias = kNone;
  };
  Head head(const Span& hidden, std::int64_t width, std::int64_t d_output, bool linear);
};

}  // namespace exphil::core
