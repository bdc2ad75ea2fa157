// The numbers of a policy by the weights of its network, and the checkpoint's tensors that they come from.
// One list serves loading, saving, gradients and updates, for every naming of checkpoints. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/policy/network.hpp"
#include "core/tensor.hpp"

namespace exphil::core {

// For each weight of a network, its values. T: float for weights and the gradients of a backend, double for
// those of the reference.
template <class T>
using PolicyValues = std::vector<std::vector<T>>;

// Zeros for each weight.
template <class T>
PolicyValues<T> zeros_of(const Network& network) {
  PolicyValues<T> zeros;
  for (const Weight& weight : network.weights) zeros.emplace_back(static_cast<std::size_t>(weight.size()));
  return zeros;
}

// The values of a weight; none where it is absent.
template <class T>
const std::vector<T>& values_of(const PolicyValues<T>& values, WeightId id) {
  static const auto* const none = new std::vector<T>;  // never destroyed
  return id == kNone ? *none : values[static_cast<std::size_t>(id)];
}

// A copy by several threads: what takes long is to get new pages from the system.
PolicyValues<float> copy_of(const PolicyValues<float>& values);

// One tensor of the checkpoint. It fills a rectangle of a weight.
struct PolicyParameter {
  std::string name;
  Shape shape;
  const char* axes = "";    // the shape in words, for errors
  WeightId weight = kNone;  // what it is part of
  std::size_t first = 0;    // its first value there
  // Values in a row of the tensor as the weight has it, and from one row to the next. 0: it is one run. A row
  // of a transposed one has a value for each `in`.
  std::size_t columns = 0, stride = 0;
  bool transposed = false;  // {in, out} in the file, {out, in} here
  std::size_t count() const { return static_cast<std::size_t>(shape.elements(name)); }
  // Where value i of the file lies in the weight.
  std::size_t place(std::size_t i) const {
    if (transposed) {
      const auto outs = static_cast<std::size_t>(shape[shape.rank() - 1]);
      i = i % outs * (count() / outs) + i / outs;
    }
    return in_weight(i);
  }
  // The same for value `at` of the rectangle, counted row by row.
  std::size_t in_weight(std::size_t at) const {
    return first + (stride == 0 ? at : at / columns * stride + at % columns);
  }
};

// Calls visit(i, place) for each value of a transposed parameter's tensor, in any order: value i of the file
// is value `place` of the weight. In squares, so that neither side is read or written across all of its
// memory for each cache line.
template <class Visit>
void each_place(const PolicyParameter& p, const Visit& visit) {
  constexpr std::size_t kSquare = 32;
  const std::size_t count = p.count();
  const auto outs = static_cast<std::size_t>(p.shape[p.shape.rank() - 1]);
  const std::size_t ins = outs == 0 ? 0 : count / outs;
  for (std::size_t in = 0; in < ins; in += kSquare) {
    for (std::size_t out = 0; out < outs; out += kSquare) {
      for (std::size_t o = out; o < std::min(out + kSquare, outs); ++o) {
        const std::size_t row = p.in_weight(o * ins);
        for (std::size_t i = in; i < std::min(in + kSquare, ins); ++i) visit(i * outs + o, row + i);
      }
    }
  }
}

// Calls visit(at, place, size) for each row of a parameter's rectangle, a run of values: from value `place`
// of the weight on. `at` counts the rectangle's values row by row, as the file does where it is not
// transposed.
template <class Visit>
void each_run(const PolicyParameter& p, const Visit& visit) {
  const std::size_t count = p.count(), columns = p.stride == 0 ? count : p.columns;
  for (std::size_t at = 0; at < count; at += columns)
    visit(at, p.in_weight(at), std::min(columns, count - at));
}

// The values of one parameter in the order of the file. `to` has parameter.count() of room.
template <class T, class Value>
void copy_parameter(const PolicyParameter& parameter, const PolicyValues<T>& values, Value* to) {
  const std::vector<T>& from = values_of(values, parameter.weight);
  if (parameter.transposed)
    return each_place(parameter, [&](std::size_t i, std::size_t place) { to[i] = from[place]; });
  each_run(parameter, [&](std::size_t i, std::size_t place, std::size_t size) {
    std::copy_n(from.data() + place, size, to + i);
  });
}
// And back.
template <class T, class Value>
void put_parameter(const PolicyParameter& parameter, const Value* from, PolicyValues<T>* values) {
  std::vector<T>& to = (*values)[static_cast<std::size_t>(parameter.weight)];
  if (parameter.transposed)
    return each_place(parameter, [&](std::size_t i, std::size_t place) { to[place] = from[i]; });
  each_run(parameter, [&](std::size_t i, std::size_t place, std::size_t size) {
    std::copy_n(from + i, size, to.data() + place);
  });
}

// Sets the weights that follow from others: A = -exp(A_log).
template <class T>
void derive(const Network& network, PolicyValues<T>* values);
// And back: adds to the gradient of A_log that of A, times A.
template <class T, class G>
void derive_back(const Network& network, const PolicyValues<T>& values, PolicyValues<G>* gradient) {
  for (std::size_t id = 0; id < network.weights.size(); ++id) {
    const WeightId source = network.weights[id].negative_exp_of;
    if (source == kNone) continue;
    std::vector<G>& to = (*gradient)[static_cast<std::size_t>(source)];
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = (*gradient)[id][i] * static_cast<G>(values[id][i]);
  }
}

}  // namespace exphil::core
