#include "support/edifice_writer.hpp"

#include <cmath>
#include <map>

namespace exphil::test::erlang {

namespace {

std::int64_t elements(const Tensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t dim : tensor.shape) count *= dim;
  return count;
}

Text floats_of(std::int64_t count, float value) {
  Text data;
  for (std::int64_t i = 0; i < count; ++i) data.append(reinterpret_cast<const char*>(&value), sizeof value);
  return data;
}

// The tensors of each layer, in the order in which the layers come.
std::vector<std::pair<std::string, std::vector<const Tensor*>>> by_layer(const std::vector<Tensor>& tensors) {
  std::vector<std::pair<std::string, std::vector<const Tensor*>>> layers;
  for (const Tensor& tensor : tensors) {
    if (layers.empty() || layers.back().first != tensor.layer) layers.push_back({tensor.layer, {}});
    layers.back().second.push_back(&tensor);
  }
  return layers;
}

Text nx_struct(const Tensor& tensor) {
  std::vector<Text> dims;
  for (const std::int64_t dim : tensor.shape) dims.push_back(integer(dim));
  const Text data = map({{atom("__struct__"), atom("Elixir.Nx.BinaryBackend")},
                         {atom("state"), binary(floats_of(elements(tensor), 0.5f))}});
  return map({{atom("__struct__"), atom("Elixir.Nx.Tensor")},
              {atom("data"), data},
              {atom("shape"), tuple(dims)},
              {atom("type"), tuple({atom("f"), integer(32)})}});
}

Text config_map(const Options& options) {
  std::vector<std::pair<Text, Text>> pairs;
  for (const auto& [name, value] : options) pairs.push_back({atom(name), value});
  return map(pairs);
}

using Placed = std::map<std::string, Text>;  // by name: what a container's map has

// Of the names from `next` on that begin with `prefix`.
Text nested(const std::string& prefix, Placed::const_iterator* next, const Placed& all) {
  std::vector<std::pair<Text, Text>> pairs;
  while (*next != all.end() && (*next)->first.compare(0, prefix.size(), prefix) == 0) {
    const std::string rest = (*next)->first.substr(prefix.size());
    const std::string key = rest.substr(0, rest.find('.'));
    if (key.size() < rest.size()) {
      pairs.push_back({key, nested(prefix + key + ".", next, all)});
    } else {
      pairs.push_back({key, (*next)->second}), ++*next;
    }
  }
  return container_map(pairs);
}

}  // namespace

std::vector<Tensor> trunk(const std::string& block) {
  return {{"input_projection", "kernel", {3, 4}},
          {"input_projection", "bias", {4}},
          {block + "_norm", "gamma", {4}},
          {block + "_norm", "beta", {4}},
          {block + "_in_proj", "kernel", {4, 16}},
          {block + "_in_proj", "bias", {16}},
          {block + "_conv_dw_conv", "kernel", {3, 1, 8}},
          {block + "_conv_dw_conv", "bias", {8}},
          {block + "_ssm_bc_proj", "kernel", {8, 4}},
          {block + "_ssm_bc_proj", "bias", {4}},
          {block + "_ssm_dt_rank", "kernel", {8, 1}},
          {block + "_ssm_dt_rank", "bias", {1}},
          {block + "_ssm_dt_proj", "kernel", {1, 8}},
          {block + "_ssm_dt_proj", "bias", {8}},
          {block + "_out_proj", "kernel", {8, 4}},
          {block + "_out_proj", "bias", {4}}};
}

std::vector<Tensor> full_policy() {
  std::vector<Tensor> all = trunk();
  for (const std::string head : {"buttons", "main_x", "main_y", "c_x", "c_y", "shoulder"}) {
    const std::int64_t outputs = head == "buttons" ? 8 : head == "shoulder" ? 5 : 17;
    all.push_back({head + "_hidden", "kernel", {4, 6}});
    all.push_back({head + "_hidden", "bias", {6}});
    all.push_back({head + "_logits", "kernel", {6, outputs}});
    all.push_back({head + "_logits", "bias", {outputs}});
  }
  return all;
}

Text file_of(const std::vector<Tensor>& tensors, const Text& metadata, const std::string& poison, int flag) {
  Text data;
  std::vector<std::pair<Text, Text>> layers;
  for (const auto& [layer, members] : by_layer(tensors)) {
    std::vector<std::pair<Text, Text>> pairs;
    for (const Tensor* tensor : members) {
      NxTensor placed;
      placed.shape = tensor->shape;
      placed.offset = static_cast<std::int64_t>(data.size());
      placed.size = 4 * elements(*tensor);
      pairs.push_back({tensor->name, placed.bytes()});
      data +=
          floats_of(elements(*tensor), tensor->layer + "." + tensor->name == poison ? std::nanf("") : 0.5f);
    }
    layers.push_back({layer, container_map(pairs)});
  }
  return container(flag, metadata, serialized(term(container_map(layers)), data));
}

Text file_of(const SafetensorsWriter& tensors, const Text& metadata, int flag) {
  Text data;
  Placed placed;
  for (const auto& [name, tensor] : tensors.tensors) {
    NxTensor made;
    made.shape = tensor.shape;
    made.offset = static_cast<std::int64_t>(data.size());
    made.size = static_cast<std::int64_t>(tensor.data.size());
    if (tensor.dtype == "U32") made.type = tuple({atom("u"), integer(32)});
    data.append(tensor.data.begin(), tensor.data.end());
    placed[name] = made.bytes();
  }
  auto next = placed.cbegin();
  return container(flag, metadata, serialized(term(nested("", &next, placed)), data));
}

Text term_of(const std::vector<Tensor>& tensors, const Options& options) {
  std::vector<std::pair<Text, Text>> layers;
  for (const auto& [layer, members] : by_layer(tensors)) {
    std::vector<std::pair<Text, Text>> pairs;
    for (const Tensor* tensor : members) pairs.push_back({binary(tensor->name), nx_struct(*tensor)});
    layers.push_back({binary(layer), map(pairs)});
  }
  return term(map({{atom("config"), config_map(options)}, {atom("params"), map(layers)}}));
}

Text spec(const char* arch, const Options& options) {
  std::vector<Text> pairs;
  for (const auto& [name, value] : options) pairs.push_back(tuple({atom(name), value}));
  return term(map(
      {{binary("__edifice_spec__"), map({{atom("arch"), atom(arch)}, {atom("build_opts"), list(pairs)}})}}));
}

Text config(const Options& options) {
  return term(map({{atom("config"), config_map(options)}}));
}

}  // namespace exphil::test::erlang
