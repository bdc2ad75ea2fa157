// Calls of the operator of Mamba-2 with random tensors, and their results against the scalar reference.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/ssd/call.hpp"
#include "support/operator_results.hpp"

namespace exphil::test {

using SsdId = core::SsdOperand;

struct SsdSpec {
  std::int64_t batch = 2, seq = 9, heads = 4, headdim = 5, groups = 2, state = 3;
  core::Dtype dtype = core::Dtype::f32;
  int skips = 1;  // d: 0 none, 1 {heads}, 2 {heads, headdim}
  bool z = true, dt_bias = true;
  bool states = true;  // initial_state, and of a gradient d_final_state
  core::DtOptions options;
  std::uint64_t seed = 1;
};
// Softplus, and bounds that some of the dt of a case exceed.
core::DtOptions bounded_softplus();

// Owns its tensors. The same spec gives the same numbers; those of a sequence do not depend on the batch.
class SsdCase {
 public:
  SsdCase(const SsdSpec& spec, bool gradient);

  // Without results.
  core::SsdCall call() const;
  core::SsdTensors views() const;
  core::TensorView view(SsdId id) const;
  // An f32 element of an input.
  float& element(SsdId id, std::size_t index);
  std::size_t elements(SsdId id) const;

 private:
  void add(SsdId id, const core::Shape& shape, float low, float high);
  SsdSpec spec_;
  core::PerOperand<SsdId, std::vector<unsigned char>> bytes_;
  core::PerOperand<SsdId, core::Shape> shapes_;
  core::PerOperand<SsdId, core::Dtype> dtypes_{};
  core::PerOperand<SsdId, bool> given_{};
};

using RunSsd = std::function<void(const core::SsdCall&)>;
using SsdResults = OperatorResults<SsdId>;

// Every result that the call can have, or those of `wanted`. Throws where the run wrote behind one.
SsdResults run_ssd(const SsdCase& test, const RunSsd& run, const std::vector<SsdId>& wanted = {});

// "" where every result is within the limit of the reference, for its type; otherwise what is not.
std::string ssd_mismatch(const SsdCase& test, const RunSsd& run);

}  // namespace exphil::test
