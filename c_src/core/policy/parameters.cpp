#include "core/policy/parameters.hpp"

#include <cmath>

#include "core/work/parallel.hpp"

namespace exphil::core {

PolicyValues<float> copy_of(const PolicyValues<float>& values) {
  PolicyValues<float> copy(values.size());
  for (std::size_t id = 0; id < values.size(); ++id) copy[id].reserve(values[id].size());
  parallel_for(static_cast<std::int64_t>(values.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto id = static_cast<std::size_t>(begin); id < static_cast<std::size_t>(end); ++id)
      copy[id] = values[id];
  });
  return copy;
}

template <class T>
void derive(const Network& network, PolicyValues<T>* values) {
  for (std::size_t id = 0; id < network.weights.size(); ++id) {
    const WeightId source = network.weights[id].negative_exp_of;
    if (source == kNone) continue;
    const std::vector<T>& from = values_of(*values, source);
    std::vector<T>& to = (*values)[id];
    constexpr std::int64_t kGrain = 1 << 12;  // some 20 us
    parallel_for(static_cast<std::int64_t>(to.size()), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        to[i] = static_cast<T>(-std::exp(static_cast<double>(from[i])));
    });
  }
}
template void derive(const Network&, PolicyValues<float>*);
template void derive(const Network&, PolicyValues<double>*);

}  // namespace exphil::core
