// Calls of the fused recurrent operators with random tensors, and their results against the scalar reference.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/recurrent/call.hpp"
#include "support/operator_results.hpp"

namespace exphil::test {

using RecurrentId = core::RecurrentOperand;

struct RecurrentKind {
  core::RecurrentOp op = core::RecurrentOp::mingru;
  bool activated = false;
};
// Every operator, and those that take activated inputs again with those.
std::vector<RecurrentKind> recurrent_kinds();
std::string name_of(const RecurrentKind& kind);

struct RecurrentSizes {
  std::int64_t batch = 2, seq = 7, hidden = 5;
  core::Dtype dtype = core::Dtype::f32;
  bool states = true;  // h0, and c0 where the operator has one; of a gradient those of the last states too
};

// Owns its tensors. The same kind, sizes and seed give the same numbers.
class RecurrentCase {
 public:
  RecurrentCase(const RecurrentKind& kind, const RecurrentSizes& sizes, bool gradient,
                std::uint64_t seed = 1);

  // Without results.
  core::RecurrentCall call() const;
  core::RecurrentTensors views() const;
  // An f32 element of an input.
  float& element(RecurrentId id, std::size_t index);
  std::size_t elements(RecurrentId id) const;
  // As what the operator returned; f32.
  void give_h(const std::vector<float>& h);

 private:
  void add(RecurrentId id, const core::Shape& shape, float low, float high, std::uint64_t seed);
  RecurrentKind kind_;
  core::Dtype dtype_;
  core::PerOperand<RecurrentId, std::vector<unsigned char>> bytes_;
  core::PerOperand<RecurrentId, core::Shape> shapes_;
  core::PerOperand<RecurrentId, bool> given_{};
};

using RunRecurrent = std::function<void(const core::RecurrentCall&)>;

using RecurrentResults = OperatorResults<RecurrentId>;

// Every result that the call can have, or those of `wanted`. Throws where the run wrote behind one.
RecurrentResults run_recurrent(const RecurrentCase& test, const RunRecurrent& run,
                               const std::vector<RecurrentId>& wanted = {});

// "" where every result is within the limit of the reference, for its type; otherwise what is not.
std::string recurrent_mismatch(const RecurrentCase& test, const RunRecurrent& run);

}  // namespace exphil::test
