#include "cuda/policy/gradient_values.hpp"

#include <cstring>

#include "core/work/parallel.hpp"

namespace exphil::cuda {

GradientValues::GradientValues(const core::PolicyWeights& weights) : weights_(weights) {
  for (const std::vector<float>& values : weights.values) {
    place_.push_back(places_.take(values.size() * sizeof(float)));
  }
}

float* GradientValues::in(CUdeviceptr memory, core::WeightId id) const {
  return id == core::kNone ? nullptr : as_pointer<float>(memory + place_[static_cast<std::size_t>(id)]);
}

std::vector<ImageSegment> GradientValues::segments() const {
  std::vector<ImageSegment> all;
  for (std::size_t i = 0; i < place_.size(); ++i) {
    const std::vector<float>& values = weights_.values[i];
    if (!values.empty()) all.push_back({values.data(), place_[i], values.size() * sizeof(float)});
  }
  return all;
}

void GradientValues::copy_out(const char* from, core::PolicyValues<float>* to) const {
  core::parallel_for(static_cast<std::int64_t>(to->size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      std::vector<float>& values = (*to)[i];
      if (!values.empty()) std::memcpy(values.data(), from + place_[i], values.size() * sizeof(float));
    }
  });
}

}  // namespace exphil::cuda
