// Inputs of an associative scan from a seed, and the check of a backend's result against the double oracle.
// Used by the tests of core, host and cuda.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/associative/problem.hpp"

namespace exphil::test {

// Owns the bytes that its problem points to.
struct AssociativeCase {
  core::AssociativeProblem problem;
  std::vector<unsigned char> x, a, initial;
  std::string name;  // for INFO

  float* x_floats() { return reinterpret_cast<float*>(x.data()); }
  float* a_floats() { return reinterpret_cast<float*>(a.data()); }
};

AssociativeCase associative_case(core::AssociativeOp op, core::Dtype dtype, const core::Shape& shape,
                                 int axis, core::AssociativeOptions options = {}, std::uint64_t seed = 1);

// A linear recurrence with a random initial state.
AssociativeCase with_initial_state(AssociativeCase test, std::uint64_t seed = 5);

// Every op with every dtype that it supports.
struct AssociativeKind {
  core::AssociativeOp op;
  core::Dtype dtype;
};
const std::vector<AssociativeKind>& associative_kinds();

using AssociativeRun = std::function<void(const core::AssociativeProblem&, const core::AssociativeOutputs&)>;

// "" where `run` writes every element within the dtype's tolerance of the oracle (integers: exactly), in each
// direction of the problem, NaN and infinities at the same positions; else the first mismatch. Outputs are
// poisoned first and followed by guards.
std::string associative_mismatch(const AssociativeCase& test, const AssociativeRun& run);

// The same against the sequential loop in f32 (f32 problems of one direction), for inputs whose intermediates
// leave f32's range but not double's: NaN and infinities must be at the same positions.
std::string associative_range_mismatch(const AssociativeCase& test, const AssociativeRun& run);

}  // namespace exphil::test
