#include "cuda/policy/gradient_values.hpp"

#include <cstring>

#include "core/work/parallel.hpp"

namespace exphil::cuda {

GradientValues::GradientValues(const core::PolicyWeights& weights) : weights_(weights) {
  for (const std::vector<float>& values : weights.values) {
    place_.push_back(places_.take(values.size() * sizeof(float)));
  }
  for (const core::StatePart& part : network().states) {
    initial_.push_back(places_.take(part.initial.size() * sizeof(float)));
  }
}

float* GradientValues::in(CUdeviceptr memory, core::WeightId id) const {
  return id == core::kNone ? nullptr : as_pointer<float>(memory + place_[static_cast<std::size_t>(id)]);
}

const float* GradientValues::initial_in(CUdeviceptr memory, core::StateId id) const {
  if (network().state(id).initial.empty()) return nullptr;
  return as_pointer<float>(memory + initial_[static_cast<std::size_t>(id)]);
}

std::vector<ImageSegment> GradientValues::segments(const core::PolicyValues<float>& of) const {
  std::vector<ImageSegment> all;
  for (std::size_t i = 0; i < place_.size(); ++i) {
    const std::vector<float>& values = of[i];
    if (!values.empty()) all.push_back({values.data(), place_[i], values.size() * sizeof(float)});
  }
  return all;
}

std::vector<ImageSegment> GradientValues::segments() const {
  std::vector<ImageSegment> all = segments(weights_.values);
  for (std::size_t i = 0; i < initial_.size(); ++i) {
    const std::vector<float>& values = network().states[i].initial;
    if (!values.empty()) all.push_back({values.data(), initial_[i], values.size() * sizeof(float)});
  }
  return all;
}

void GradientValues::copy_out(const std::byte* from, core::PolicyValues<float>* to) const {
  core::parallel_for(static_cast<std::int64_t>(to->size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      std::vector<float>& values = (*to)[i];
      if (!values.empty()) std::memcpy(values.data(), from + place_[i], values.size() * sizeof(float));
    }
  });
}

}  // namespace exphil::cuda
