#include "cuda/policy/gradient_values.hpp"

#include <algorithm>
#include <cstring>

#include "core/parallel.hpp"

namespace exphil::cuda {

GradientValues::GradientValues(const core::PolicyWeights& weights) : weights_(weights) {
  // Of all heads one after another: hidden layers, then their biases.
  for (std::size_t i = 0; i < weights.heads.size(); ++i) place(weights.heads[i].hidden, i > 0);
  for (std::size_t i = 0; i < weights.heads.size(); ++i) place(weights.heads[i].hidden_bias, i > 0);
  for (const std::vector<float>* vector : core::vectors_of<float>(weights)) {
    if (places_.count(vector) == 0) place(*vector);
  }
}

void GradientValues::place(const std::vector<float>& vector, bool joins_previous) {
  constexpr std::size_t kAlignment = 256;
  if (!joins_previous) bytes_ = (bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  places_[&vector] = bytes_;
  bytes_ += vector.size() * sizeof(float);
}

float* GradientValues::in(CUdeviceptr memory, const std::vector<float>& vector) const {
  return vector.empty() ? nullptr : as_pointer<float>(memory + places_.at(&vector));
}

std::vector<ImageSegment> GradientValues::segments() const {
  std::vector<ImageSegment> all;
  for (const auto& [vector, place] : places_) {
    if (!vector->empty()) all.push_back({vector->data(), place, vector->size() * sizeof(float)});
  }
  std::sort(all.begin(), all.end(), [](const auto& p, const auto& q) { return p.at < q.at; });
  return all;
}

void GradientValues::copy_out(const char* from, core::PolicyValues<float>* to) const {
  const auto mine = core::vectors_of<float>(weights_);
  const auto theirs = core::vectors_of(*to);
  core::parallel_for(static_cast<std::int64_t>(mine.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (mine[at]->empty()) continue;  // memcpy takes no null pointer
      std::memcpy(theirs[at]->data(), from + places_.at(mine[at]), mine[at]->size() * sizeof(float));
    }
  });
}

}  // namespace exphil::cuda
