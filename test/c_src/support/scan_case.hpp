// Random selective-scan problems of any shape, dtype and layout, with their tensors. The values are in the
// range of a Mamba layer: decaying A, positive dt, everything else around zero.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/scan/call.hpp"

namespace exphil::test {

struct ScanSpec {
  std::int64_t batch = 2, seq = 17, dim = 5, state = 3;
  core::Dtype dtype = core::Dtype::f32;
  bool complex = false, full_matrix = false;
  // The layout of b and c: 0 constant {dim, state}; 1 {batch, seq, state}; more: in groups.
  std::int64_t b_groups = 1, c_groups = 1;
  bool d = false, z = false, dt_bias = false, initial_state = false;
  bool structured_a = false;  // A[d, n] = (n + 1) A[d, 0]
  bool ladder_a = false;      // A[d, n] = -(n + 1), as S4D-Real and Mamba begin
  core::ScanOptions options;
  std::uint64_t seed = 1;

  std::string to_string() const;  // for INFO
};

// Views are valid while the object exists (it may be moved).
class ScanCase {
 public:
  explicit ScanCase(const ScanSpec& spec);
  ScanCase(ScanCase&&) = default;

  const ScanSpec& spec() const { return spec_; }
  const core::ScanInputs& inputs() const { return inputs_; }
  // The addresses of the results are null.
  core::ScanCall call() const { return core::validate_scan(inputs_, spec_.options); }

 private:
  core::TensorView add(core::Dtype dtype, const core::Shape& shape, float low, float high);
  core::TensorView add(core::Dtype dtype, const core::Shape& shape, const std::vector<float>& values);
  core::TensorView make_a();

  ScanSpec spec_;
  std::uint64_t tensors_made_ = 0;
  core::ScanInputs inputs_;
  std::vector<std::vector<std::uint8_t>> storage_;
};

// The oracle's results of a call.
struct ScanExpected {
  std::vector<double> y, y_reverse, final_state, states;
};
ScanExpected expect(const core::ScanCall& call, bool with_states = false);

// The call for sequences begin .. begin + count only.
core::ScanCall slice_of(const core::ScanCall& call, std::int64_t begin, std::int64_t count);

// A result in the call's dtype as f32 numbers.
std::vector<float> widen_result(const void* data, core::Dtype dtype, std::size_t count);

}  // namespace exphil::test
