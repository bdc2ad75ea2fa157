#include "core/policy/rounding.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace exphil::core {

namespace {

using Values = std::vector<float>;

class Rounding {
 public:
  Rounding(PolicyWeights* weights, Precision precision)
      : w_(*weights), n_(weights->config.network), precision_(precision) {}

  void run() {
    identity_head();
    const auto of = [this](Block& block) { fold_norms(&block); };
    of(n_.input);
    for (Block& layer : n_.layers) of(layer);
    of(n_.output);
    std::set<WeightId> matrices;
    for (const Phase* phase : phases_of(n_)) {
      if (const auto* const product = std::get_if<Product>(phase)) matrices.insert(product->weight);
    }
    for (const WeightId id : matrices) {
      round_rows(precision_, n_.weight(id).columns, n_.weight(id).name, &values(id));
    }
  }

 private:
  Values& values(WeightId id) { return w_.values[static_cast<std::size_t>(id)]; }

  WeightId append(const std::string& name, std::int64_t rows, std::int64_t columns, Values given) {
    n_.weights.push_back({name, rows, columns, kNone});
    w_.values.push_back(std::move(given));
    return static_cast<WeightId>(n_.weights.size()) - 1;
  }

  // A norm whose result is only copied has no matrix that could take its weight.
  void identity_head() {
    for (Phase& phase : n_.output) {
      const auto* const copy = std::get_if<Copy>(&phase);
      if (copy == nullptr || std::get_if<Norm>(&n_.output.front()) == nullptr) continue;
      const auto n = static_cast<std::size_t>(copy->in.size);
      Values identity(n * n);
      for (std::size_t i = 0; i < n; ++i) identity[i * n + i] = 1.0f;
      Product product{copy->in, copy->out};
      product.weight = append("head", copy->in.size, copy->in.size, std::move(identity));
      phase = product;
    }
  }

  void fold_norms(Block* block) {
    for (Phase& phase : *block) {
      auto* const norm = std::get_if<Norm>(&phase);
      if (norm == nullptr || !only_products_read(*block, norm->out)) continue;
      std::set<WeightId> done;  // several products may have rows of one matrix
      for (Phase& reader : *block) {
        auto* const product = std::get_if<Product>(&reader);
        if (product == nullptr || product->in.vector != norm->out.vector) continue;
        if (done.insert(product->weight).second)
          fold(*norm, product->weight, biases_of(*block, product->weight));
      }
      values(norm->weight).assign(values(norm->weight).size(), 1.0f);
      if (norm->bias != kNone) values(norm->bias).assign(values(norm->bias).size(), 0.0f);
    }
  }

  // Another phase, such as a gate, has no matrix that could take the norm's weight; and one of more columns
  // has others beside those of the norm.
  static bool only_products_read(const Block& block, const Span& span) {
    bool read = false;
    for (const Phase& phase : block) {
      const std::vector<Span> all = reads(phase);
      if (std::none_of(all.begin(), all.end(), [&](const Span& s) { return s.vector == span.vector; }))
        continue;
      const auto* const product = std::get_if<Product>(&phase);
      if (product == nullptr || !(product->in == span)) return false;
      read = true;
    }
    return read;
  }

  // The bias of every product of this matrix.
  static std::vector<WeightId*> biases_of(Block& block, WeightId matrix) {
    std::vector<WeightId*> biases;
    for (Phase& phase : block) {
      auto* const product = std::get_if<Product>(&phase);
      if (product != nullptr && product->weight == matrix) biases.push_back(&product->bias);
    }
    return biases;
  }

  // bias += matrix norm_bias; matrix *= norm, column by column.
  void fold(const Norm& norm, WeightId matrix, const std::vector<WeightId*>& biases) {
    const auto rows = static_cast<std::size_t>(n_.weight(matrix).rows);
    if (norm.bias != kNone && *biases.front() == kNone) {
      const WeightId made =
          append(n_.weight(matrix).name + "'s bias", 1, n_.weight(matrix).rows, Values(rows));
      for (WeightId* bias : biases) *bias = made;
    }
    const Values& scale = values(norm.weight);
    const std::size_t columns = scale.size();
    for (std::size_t row = 0; row < rows; ++row) {
      float* const weights = values(matrix).data() + row * columns;
      double sum = 0;
      for (std::size_t k = 0; k < columns; ++k) {
        if (norm.bias != kNone)
          sum += static_cast<double>(weights[k]) * static_cast<double>(values(norm.bias)[k]);
        weights[k] *= scale[k];
      }
      if (norm.bias == kNone) continue;
      float& bias = values(*biases.front())[row];
      bias = static_cast<float>(static_cast<double>(bias) + sum);
    }
  }

  PolicyWeights& w_;
  Network& n_;
  const Precision precision_;
};

std::uint64_t hashed(std::uint64_t fingerprint, const std::string& about) {
  HashedParts parts;
  parts.add(hex(fingerprint));
  parts.add(about);
  return parts.hash64();
}

bool has_matrix_states(const Network& n) {
  for (const Block& layer : n.layers) {
    for (const Phase& phase : layer) {
      if (has_matrix_state(phase)) return true;
    }
  }
  return false;
}

}  // namespace

PolicyWeights rounded_weights(const PolicyWeights& weights, Precision precision) {
  PolicyWeights rounded = weights;
  if (precision == Precision::f32) return rounded;
  rounded.config.precision = precision;
  rounded.fingerprint = hashed(weights.fingerprint, precision_name(precision));
  rounded.parameters.clear();
  Rounding(&rounded, precision).run();
  return rounded;
}

PolicyWeights with_states(PolicyWeights weights, Precision states) {
  if (states == Precision::f32) return weights;
  if (states != Precision::f16 && states != Precision::bf16) {
    fail(ErrorKind::invalid_argument, ":states",
         ":states must be :f32, :f16 or :bf16, got :", precision_name(states));
  }
  if (!has_matrix_states(weights.network())) {
    fail(ErrorKind::invalid_argument, ":states", "a policy of the trunk ", weights.config.trunk,
         " has no matrix states, which alone are stored in 16 bits");
  }
  weights.config.states = states;
  weights.fingerprint = fingerprint_with_states(weights.fingerprint, states);
  return weights;
}

std::uint64_t fingerprint_with_states(std::uint64_t of_weights, Precision states) {
  return states == Precision::f32 ? of_weights
                                  : hashed(of_weights, std::string("states ") + precision_name(states));
}

}  // namespace exphil::core
