#include "core/policy/parameters.hpp"

#include <cmath>

namespace exphil::core {

template <class T>
void derive(const Network& network, PolicyValues<T>* values) {
  for (std::size_t id = 0; id < network.weights.size(); ++id) {
    const WeightId source = network.weights[id].negative_exp_of;
    if (source == kNone) continue;
    const std::vector<T>& from = values_of(*values, source);
    std::vector<T>& to = (*values)[id];
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<T>(-std::exp(static_cast<double>(from[i])));
  }
}
template void derive(const Network&, PolicyValues<float>*);
template void derive(const Network&, PolicyValues<double>*);

}  // namespace exphil::core
