#include "core/trunk/deltanet/initial.hpp"

#include <cmath>

#include "core/error.hpp"
#include "core/limits.hpp"

namespace exphil::core::deltanet {

namespace {

class Maker {
 public:
  explicit Maker(const Initializer& draw) : draw_(draw) {}

  void norm(const std::string& name, std::int64_t size) {
    add(name + ".gamma", {size}, Initializer::constant({size}, 1));
    add(name + ".beta", {size}, Initializer::constant({size}, 0));
  }

  void dense(const std::string& name, std::int64_t in, std::int64_t out) {
    add(name + ".kernel", {in, out}, draw_.glorot(name + ".kernel", {in, out}));
    add(name + ".bias", {out}, Initializer::constant({out}, 0));
  }

  // Axon takes taps * size values for what comes in, and size for what goes out.
  void convolution(const std::string& name, std::int64_t taps, std::int64_t size) {
    const Shape shape{taps, 1, size};
    const double bound = std::sqrt(6.0 / static_cast<double>((taps + 1) * size));
    add(name + ".kernel", shape, draw_.uniform(name + ".kernel", shape, bound));
    add(name + ".bias", {size}, Initializer::constant({size}, 0));
  }

  std::vector<InitialTensor> made;

 private:
  void add(const std::string& name, const Shape& shape, std::vector<float> values) {
    made.push_back({name, shape, std::move(values), {}});
  }
  const Initializer& draw_;
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
  require_weight_limit(d_input * units + layers * (units * (7 * units + taps + 10)) + units * (d_output + 3));
  Maker make(draw);
  if (d_input != units) make.dense("input_projection", d_input, units);
  for (std::int64_t i = 1; i <= layers; ++i) {
    const std::string of = "gated_delta_net_" + std::to_string(i);
    make.norm(of + "_norm", units);
    make.convolution(of + "_short_conv", taps, units);
    make.dense(of + "_qkvbag_proj", units, 6 * units);
    make.dense(of + "_out_proj", units, units);
  }
  make.norm("final_norm", units);
  make.dense("head", units, d_output);
  return std::move(make.made);
}

}  // namespace exphil::core::deltanet
