// A random scan with the gradients of its results, a backend's results, and their check against the oracle.
// Used by the tests of core, host and cuda.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/scan/gradient.hpp"
#include "core/scan/gradient_reference.hpp"
#include "support/numbers.hpp"
#include "support/scan_case.hpp"

namespace exphil::test {

class ScanGradCase {
 public:
  explicit ScanGradCase(const ScanSpec& spec, bool with_d_final_state = true);

  const core::ScanGradInputs& inputs() const { return inputs_; }
  core::ScanGradProblem problem() const { return core::validate_scan_grad(inputs_, scan_.spec().options); }

 private:
  ScanCase scan_;
  core::ScanGradInputs inputs_;
  std::vector<std::vector<std::uint8_t>> storage_;
};

// The gradients by operand name.
using NamedGrads = std::map<std::string, std::vector<double>>;
NamedGrads named(const core::ScanGradValues<double>& values);

// A backend's gradients of a problem: poisoned before, followed by guards.
class GradResults {
 public:
  explicit GradResults(const core::ScanGradProblem& problem);
  core::ScanGradOutputs outputs();

  // "" where no guard was overwritten, else the name of the gradient.
  std::string overrun() const;
  std::vector<float> values(const std::string& name) const;
  const std::map<std::string, std::vector<unsigned char>>& bytes() const { return bytes_; }

 private:
  void* at(const std::string& name);

  core::ScanGradProblem problem_;
  std::map<std::string, core::Dtype> dtypes_;
  std::map<std::string, std::vector<unsigned char>> bytes_;
};

using ScanGradRun = std::function<void(const core::ScanGradProblem&, const core::ScanGradOutputs&)>;

// "" where `run` writes every gradient within the dtype's tolerance (2e-5, f16 4e-3, bf16 3e-2) of the
// oracle; else every mismatch.
std::string scan_grad_mismatch(const core::ScanGradProblem& problem, const ScanGradRun& run);

// A state, a type and options at random; the discretizations in turn with `index`.
void choose_options(Random& random, int index, ScanSpec* spec);

}  // namespace exphil::test
