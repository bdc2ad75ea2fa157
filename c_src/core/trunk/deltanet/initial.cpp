#include "core/trunk/deltanet/initial.hpp"

#include "core/error.hpp"
#include "core/limits.hpp"

namespace exphil::core::deltanet {

namespace {

struct Tensors {
  std::vector<PolicyParameter> all;

  void add(const std::string& name, const Shape& shape) {
    all.emplace_back();
    all.back().name = name, all.back().shape = shape;
  }
  void norm(const std::string& name, std::int64_t size) {
    add(name + ".gamma", {size});
    add(name + ".beta", {size});
  }
  void kernel(const std::string& name, const Shape& shape, std::int64_t outs) {
    add(name + ".kernel", shape);
    add(name + ".bias", {outs});
  }
};

}  // namespace

std::vector<InitialTensor> initial_weights(const std::string& trunk, SizeReader given,
                                           const Initializer& draw) {
  const std::int64_t d_input = given.take("d_input", kMaxDim), d_output = given.take("d_output", kMaxDim),
                     units = given.take("d_model", kMaxDim), layers = given.take("layers", kMaxLayers),
                     heads = given.take("num_heads", kMaxDim, kDefaultHeads),
                     taps = given.take("d_conv", kMaxTaps, kDefaultTaps);
  given.require_all_taken(trunk);
  if (units % heads != 0) {
    fail(ErrorKind::invalid_argument, ":num_heads", ":num_heads must divide d_model ", units, ", got ",
         heads);
  }
  Tensors tensors;
  if (d_input != units) tensors.kernel("input_projection", {d_input, units}, units);
  for (std::int64_t i = 1; i <= layers; ++i) {
    const std::string of = "gated_delta_net_" + std::to_string(i);
    tensors.norm(of + "_norm", units);
    tensors.kernel(of + "_short_conv", {taps, 1, units}, units);
    tensors.kernel(of + "_qkvbag_proj", {units, 6 * units}, 6 * units);
    tensors.kernel(of + "_out_proj", {units, units}, units);
  }
  tensors.norm("final_norm", units);
  tensors.kernel("head", {units, d_output}, d_output);
  require_weight_limit(tensors.all);
  std::vector<InitialTensor> made;
  for (const PolicyParameter& tensor : tensors.all) {
    made.push_back({tensor.name, tensor.shape, draw.as_axon(tensor.name, tensor.shape), {}});
  }
  return made;
}

}  // namespace exphil::core::deltanet
