// Parts of a gradient's sums, and the list of sums that one launch of policy_gradient_sums takes. Used by
// cuda/policy/gradient_pass.hpp. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/policy/gradient_arguments.cuh"

namespace exphil::cuda {

class PartialSums {
 public:
  // What into() takes for this many floats.
  static std::int64_t padded(std::int64_t floats) { return (floats + 63) / 64 * 64; }
  PartialSums() = default;
  PartialSums(float* memory, std::int64_t floats) : memory_(memory), floats_(floats) {}

  void restart() { used_ = 0, sums_.clear(); }
  // Sums in the room that is left, which replace what they sum into.
  PartialSums rest() const { return {memory_ + used_, floats_ - used_}; }
  // Whether later sums are added to what is there. At first they replace it.
  void set_adds(bool adds) { adds_ = adds; }
  bool adds() const { return adds_; }
  // Room for {parts, count}, whose sum goes to `to`, times `factor` where it is not null. Null where `to` is.
  float* into(float* to, std::int64_t parts, std::int64_t count);
  // A second sum of what the last call gave room for.
  void also_into(float* to, const float* factor);
  // A sum of parts that are elsewhere.
  void add(const float* from, float* to, std::int64_t parts, std::int64_t count);
  const std::vector<policy::PartSum>& sums() const { return sums_; }

 private:
  float* memory_ = nullptr;
  std::int64_t floats_ = 0, used_ = 0;
  bool adds_ = false;
  std::vector<policy::PartSum> sums_;
};

}  // namespace exphil::cuda
