// Networks that no trunk makes, with random weights: what an executor must run because
// core/policy/network.hpp allows it.
#pragma once

#include <string>
#include <vector>

#include "core/policy/config.hpp"
#include "support/numbers.hpp"
#include "support/policy_grad_case.hpp"

namespace exphil::test {

// Makes a network part by part: vectors, weights and states, and phases with weights of their own.
class NetworkMaker {
 public:
  // With the vectors frame, hidden and outs.
  NetworkMaker(std::uint64_t seed, std::int64_t d_input, std::int64_t d_hidden, std::int64_t d_output);

  core::Network network;
  // Checks it.
  std::shared_ptr<const core::PolicyWeights> policy(std::int64_t window = 0) const;

  core::VectorId vector(const char* name, std::int64_t size);
  core::Span all(core::VectorId id) const { return network.all_of(id); }
  core::WeightId weight(std::int64_t rows, std::int64_t columns);
  core::StateId state(const char* name, std::int64_t layer, std::int64_t rows, std::int64_t columns);

  core::Norm norm(const core::Span& in, const core::Span& out, core::NormKind kind = core::NormKind::rms);
  core::Product product(const core::Span& in, const core::Span& out, bool bias = true);
  core::Product relu(const core::Span& in, const core::Span& out);
  core::Product residual(const core::Span& in);
  core::Convolution convolution(const core::Span& in, const core::Span& out, std::int64_t taps,
                                std::int64_t layer, const char* state_name = "conv");
  core::Softplus softplus(const core::Span& in, const core::Span& out);
  // With x, dt, z, b, c and out set: gives it its weights and its state.
  core::SelectiveScan scan(core::SelectiveScan scan, std::int64_t layer, bool bias, bool skip);

 private:
  Random random_;
  core::PolicyValues<float> values_;
};

// Vectors that are read and written in parts, gradients that must be added to, a relu in a layer, a vector
// that nothing reads. The sizes say where vectors are cut.
struct OddSizes {
  std::int64_t first_hidden = 6, width = 9, inner = 7, first_unread = 1;
};
std::shared_ptr<const core::PolicyWeights> odd_network(const OddSizes& sizes = {});
// Where the CPU's panels begin.
inline constexpr OddSizes kPanelSizes{16, 21, 16, 16};

// Each has what no trunk's network has; the vectors are cut where panels begin.
std::vector<NamedPolicy> made_networks();

}  // namespace exphil::test
