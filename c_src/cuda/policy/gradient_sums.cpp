#include "cuda/policy/gradient_sums.hpp"

#include "core/error.hpp"

namespace exphil::cuda {

float* PartialSums::into(float* to, std::int64_t parts, std::int64_t count) {
  if (to == nullptr || count == 0) return nullptr;
  float* const from = memory_ + used_;
  used_ += padded(parts * count);
  if (used_ > floats_)
    core::fail(core::ErrorKind::internal, "", "the parts of a gradient exceed their memory");
  add(from, to, parts, count);
  return from;
}

void PartialSums::also_into(float* to, const float* factor) {
  policy::PartSum sum = sums_.back();
  sum.to = to, sum.factor = factor;
  sums_.push_back(sum);
}

void PartialSums::add(const float* from, float* to, std::int64_t parts, std::int64_t count) {
  policy::PartSum sum{};
  sum.from = from, sum.to = to, sum.parts = parts, sum.count = count, sum.adds = adds_ ? 1 : 0;
  sums_.push_back(sum);
}

}  // namespace exphil::cuda
