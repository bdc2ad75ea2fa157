// Networks of gated cells with random weights, as core/trunk/gated makes them: for tests of executors.
#pragma once

#include <algorithm>
#include <memory>

#include "support/network_builder.hpp"

namespace exphil::test {

struct GatedSpec {
  formulas::Cell cell = formulas::Cell::gru;
  std::int64_t d_input = 9, units = 34, d_output = 7, layers = 2;
  bool initial = false;  // a new agent's state is not zeros
};

class GatedNetwork {
 public:
  explicit GatedNetwork(const GatedSpec& spec)
      : spec_(spec),
        recurrent_(formulas::recurrent(spec.cell)),
        b_(spec.d_input, recurrent_ ? std::max(spec.d_input, spec.units) : spec.units, spec.d_output) {
    const core::Network& n = b_.n;
    normed_ = b_.vector("normed", n.size_of(n.hidden)), before_ = b_.vector("before", spec.units);
    out_ = b_.vector("out", spec.units);
    for (int gate = 0; gate < formulas::gates_of(spec.cell); ++gate) {
      x_[gate] = b_.vector("x", spec.units), h_[gate] = b_.vector("h", spec.units);
    }
    if (recurrent_) {
      b_.n.input = {core::Copy{b_.all(n.frame), {n.hidden, 0, spec.d_input}}};
    } else {
      b_.n.input = {b_.product(b_.all(n.frame), b_.all(n.hidden), true)};
    }
    for (std::int64_t i = 0; i < spec.layers; ++i) layer(i);
    const core::Span hidden{n.hidden, 0, spec.units}, normed{normed_, 0, spec.units};
    b_.n.output = {norm(hidden, normed), b_.product(normed, b_.all(n.outs), true)};
  }

  std::shared_ptr<const core::PolicyWeights> weights() const { return b_.weights(); }
  NetworkBuilder& builder() { return b_; }

 private:
  core::Norm norm(const core::Span& in, const core::Span& out) {
    core::Norm made = b_.norm(in, out);
    made.kind = core::NormKind::layer, made.bias = b_.weight(1, in.size);
    return made;
  }

  void gates(const core::Span& in, const core::VectorId (&to)[formulas::kMaxGates], bool bias,
             std::array<core::Span, formulas::kMaxGates>* sums, core::Block* block) {
    const int count = formulas::gates_of(spec_.cell);
    const core::WeightId weight = b_.weight(count * spec_.units, in.size),
                         biases = bias ? b_.weight(1, count * spec_.units) : core::kNone;
    for (int gate = 0; gate < count; ++gate) {
      core::Product product{in, b_.all(to[gate])};
      product.weight = weight, product.bias = biases, product.first_row = gate * spec_.units;
      (*sums)[static_cast<std::size_t>(gate)] = product.out;
      block->push_back(product);
    }
  }

  void layer(std::int64_t index) {
    const std::int64_t size = index == 0 && recurrent_ ? spec_.d_input : spec_.units;
    const core::Span normed{normed_, 0, size};
    core::Block block = {norm({b_.n.hidden, 0, size}, normed)};
    core::GatedCell cell;
    cell.cell = spec_.cell, cell.out = b_.all(out_);
    cell.state = b_.state("h", index, formulas::states_of(spec_.cell), spec_.units);
    if (spec_.initial) {
      core::StatePart& state = b_.n.states.back();
      state.initial = Random(static_cast<std::uint64_t>(70 + index))
                          .vector(static_cast<std::size_t>(state.size()), -0.5f, 0.5f);
    }
    gates(normed, x_, true, &cell.x, &block);
    if (recurrent_) {
      block.push_back(core::Recall{b_.all(before_), cell.state});
      gates(b_.all(before_), h_, spec_.cell == formulas::Cell::gru, &cell.h, &block);
    }
    block.push_back(cell);
    block.push_back(core::Copy{cell.out, {b_.n.hidden, 0, spec_.units}, !recurrent_});
    b_.n.layers.push_back(block);
  }

  const GatedSpec spec_;
  const bool recurrent_;
  NetworkBuilder b_;
  core::VectorId normed_, before_, out_, x_[formulas::kMaxGates] = {}, h_[formulas::kMaxGates] = {};
};

inline std::shared_ptr<const core::PolicyWeights> gated_weights(const GatedSpec& spec) {
  return GatedNetwork(spec).weights();
}

// Each cell, with what differs in the first layer: more values than units, fewer, and other padding.
inline std::vector<GatedSpec> gated_specs() {
  using formulas::Cell;
  return {{Cell::gru, 9, 34, 7, 3, true},
          {Cell::gru, 70, 34, 7, 2, false},
          {Cell::lstm, 41, 34, 7, 2, true},
          {Cell::min_gru, 9, 34, 7, 2, false},
          {Cell::min_lstm, 40, 65, 7, 2, true}};
}

}  // namespace exphil::test
