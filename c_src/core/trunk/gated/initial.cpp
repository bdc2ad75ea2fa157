#include "core/trunk/gated/initial.hpp"

#include "core/limits.hpp"
#include "core/trunk/gated/description.hpp"
#include "core/trunk/load.hpp"

namespace exphil::core::gated {

namespace {

Sizes sizes_of(const std::string& trunk, SizeReader& given) {
  Sizes s;
  s.names = names_of(trunk);
  s.d_input = given.take("d_input", kMaxDim);
  s.d_output = given.take("d_output", kMaxDim);
  s.units = given.take("d_model", kMaxDim);
  s.layers = given.take("layers", kMaxLayers);
  given.require_all_taken(trunk);
  s.projects = !s.names->recurrent() && s.d_input != s.units;
  s.epsilon = s.names->default_epsilon();
  return s;
}

}  // namespace

std::vector<InitialTensor> initial_weights(const std::string& trunk, SizeReader given,
                                           const Initializer& draw) {
  const Sizes sizes = sizes_of(trunk, given);
  const Description description = describe(sizes);
  require_weight_limit(description.parameters);
  std::vector<InitialTensor> made;
  for (const PolicyParameter& tensor : description.parameters) {
    made.push_back({tensor.name, tensor.shape, draw.as_axon(tensor.name, tensor.shape), {}});
  }
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const std::vector<std::uint32_t> key = draw.words(sizes.names->layer(i) + ".key", 2);
    for (const std::string& name : description.keys[static_cast<std::size_t>(i)]) {
      made.push_back({name, {2}, {}, key});
    }
  }
  return made;
}

}  // namespace exphil::core::gated
