// The numbers of a Mamba policy by their place in it, and the checkpoint's tensors that they come from. One
// list serves loading, saving, gradients and updates, for every naming of checkpoints. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.hpp"

namespace exphil::core {

// Row-major, {out, in} for matrices as PyTorch stores them. Optional vectors are empty where the checkpoint
// has none. T: float for weights and the gradients of a backend, double for those of the reference.
template <class T>
struct PolicyLayerValues {
  std::vector<T> norm, norm_bias;          // {d_model}; a bias for LayerNorm only
  std::vector<T> in_proj, in_proj_bias;    // {2 d_inner, d_model}: x rows, then z rows
  std::vector<T> conv, conv_bias;          // {d_inner, d_conv}, oldest tap first
  std::vector<T> x_proj, x_proj_bias;      // {dt_rank + 2 d_state, d_inner}: dt, B, C rows
  std::vector<T> dt_proj, dt_proj_bias;    // {d_inner, dt_rank}
  std::vector<T> a_log;                    // {d_inner, d_state}; empty where A is fixed
  std::vector<T> a;                        // {d_inner, d_state}: -exp(a_log), or -(1..d_state)
  std::vector<T> d;                        // {d_inner}; empty: no skip
  std::vector<T> out_proj, out_proj_bias;  // {d_model, d_inner}
};

// One of several heads that read the same final hidden state: out relu(hidden x + hidden_bias) + out_bias.
template <class T>
struct PolicyHeadValues {
  std::vector<T> hidden, hidden_bias;  // {width, d_model}
  std::vector<T> out, out_bias;        // {count of its OutputGroup, width}
  std::int64_t width() const { return static_cast<std::int64_t>(hidden_bias.size()); }
};

// Outputs come from `heads` (one for each group of the config, in order), else from `head`, else they are the
// hidden state itself (d_output == d_model).
template <class T>
struct PolicyValues {
  std::vector<T> input_proj, input_proj_bias;  // {d_model, d_input}
  std::vector<PolicyLayerValues<T>> layers;
  std::vector<T> norm_f, norm_f_bias;  // {d_model}
  std::vector<T> head, head_bias;      // {d_output, d_model}
  std::vector<PolicyHeadValues<T>> heads;
};

// Every vector of the values, in one fixed order.
template <class T>
std::vector<std::vector<T>*> vectors_of(PolicyValues<T>& values) {
  std::vector<std::vector<T>*> all = {&values.input_proj, &values.input_proj_bias,
                                      &values.norm_f,     &values.norm_f_bias,
                                      &values.head,       &values.head_bias};
  for (PolicyLayerValues<T>& l : values.layers) {
    all.insert(all.end(), {&l.norm, &l.norm_bias, &l.in_proj, &l.in_proj_bias, &l.conv, &l.conv_bias,
                           &l.x_proj, &l.x_proj_bias, &l.dt_proj, &l.dt_proj_bias, &l.a_log, &l.a, &l.d,
                           &l.out_proj, &l.out_proj_bias});
  }
  for (PolicyHeadValues<T>& h : values.heads) {
    all.insert(all.end(), {&h.hidden, &h.hidden_bias, &h.out, &h.out_bias});
  }
  return all;
}
template <class T>
std::vector<const std::vector<T>*> vectors_of(const PolicyValues<T>& values) {
  const auto all = vectors_of(const_cast<PolicyValues<T>&>(values));
  return {all.begin(), all.end()};
}

// Zeros of the same sizes.
template <class To, class From>
PolicyValues<To> zeros_like(const PolicyValues<From>& values) {
  PolicyValues<To> zeros;
  zeros.layers.resize(values.layers.size());
  zeros.heads.resize(values.heads.size());
  const auto from = vectors_of(values);
  const auto to = vectors_of(zeros);
  for (std::size_t i = 0; i < from.size(); ++i) to[i]->resize(from[i]->size());
  return zeros;
}

// One tensor of the checkpoint.
struct PolicyParameter {
  std::string name;
  Shape shape;
  const char* axes = "";    // the shape in words, for errors
  std::size_t vector = 0;   // which of vectors_of
  std::size_t first = 0;    // its first value there
  bool transposed = false;  // {in, out} in the file, {out, in} here
  std::size_t count() const { return static_cast<std::size_t>(shape.elements(name)); }
  // Where value i of the file lies in the vector.
  std::size_t place(std::size_t i) const {
    if (!transposed) return first + i;
    const auto columns = static_cast<std::size_t>(shape[shape.rank() - 1]);
    return first + i % columns * (count() / columns) + i / columns;
  }
};

// The values of one parameter in the order of the file, and back. `to` has parameter.count() of room; a
// vector grows to hold the parameter.
template <class T, class Value>
void copy_parameter(const PolicyParameter& parameter, const PolicyValues<T>& values, Value* to) {
  const std::vector<T>& from = *vectors_of(values)[parameter.vector];
  if (!parameter.transposed) {
    std::copy_n(from.data() + parameter.first, parameter.count(), to);
    return;
  }
  for (std::size_t i = 0, n = parameter.count(); i < n; ++i) to[i] = from[parameter.place(i)];
}

}  // namespace exphil::core
