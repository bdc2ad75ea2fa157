// One small case for each kernel of the scans, the associative scans, the AR-SSM layer and a policy's
// gradient: small enough for compute-sanitizer's racecheck, which runs a kernel thousands of times slower.
// Hidden; .ci/sanitize_gpu runs it on a machine with a GPU. policy/racecheck_test.cpp has the kernels of a
// policy's step.
#include "cuda/associative/scan.hpp"
#include "cuda/cuda_test.hpp"
#include "cuda/policy/gradient.hpp"
#include "cuda/scan/gradient_runner.hpp"
#include "cuda/scan/run_case.hpp"
#include "cuda/semiseparable/layer.hpp"
#include "support/associative_case.hpp"
#include "support/catch.hpp"
#include "support/gated_policy.hpp"
#include "support/policy.hpp"
#include "support/policy_grad_checks.hpp"
#include "support/scan_grad_case.hpp"
#include "support/semiseparable_case.hpp"

namespace exphil::test {
namespace {

using core::AssociativeOp;
using core::Dtype;
using core::ScanAlgorithm;

ScanSpec small(std::int64_t seq, std::int64_t dim, std::int64_t state, ScanAlgorithm algorithm) {
  ScanSpec spec;
  spec.seq = seq, spec.dim = dim, spec.state = state, spec.options.algorithm = algorithm;
  spec.d = spec.z = spec.dt_bias = spec.initial_state = spec.options.dt_softplus = true;
  return spec;
}

// The general kernel, the wide one, and the one for a full matrix A.
std::vector<ScanSpec> sequential_scans() {
  std::vector<ScanSpec> specs = {small(40, 33, 7, ScanAlgorithm::sequential),
                                 small(21, 64, 16, ScanAlgorithm::automatic),
                                 small(20, 7, 5, ScanAlgorithm::automatic)};
  specs.back().full_matrix = true;
  specs.back().options.discretization = formulas::Discretization::bilinear;
  return specs;
}

// The short kernel, and the chunked one with few and with many states.
std::vector<ScanSpec> chunked_scans() {
  return {small(150, 33, 16, ScanAlgorithm::chunked), small(1100, 3, 16, ScanAlgorithm::chunked),
          small(150, 3, 256, ScanAlgorithm::chunked)};
}

void check_scans(const std::vector<ScanSpec>& specs) {
  for (const ScanSpec& spec : specs) {
    const ScanCase c(spec);
    INFO(spec.to_string());
    check_close(c.call().shape, scan_on_device(c.call()), expect(c.call()), false);
  }
}

TEST_CASE("small sequential scans on the device", "[.racecheck][kernels]") {
  if (have_device()) check_scans(sequential_scans());
}

// Not for racecheck, which does not know that a word itself may say that it has come: it reports the words
// that blocks of a cluster hand each other in these two kernels.
TEST_CASE("small chunked scans on the device", "[cuda][gpu][scan]") {
  if (have_device()) check_scans(chunked_scans());
}

TEST_CASE("gradients of small scans on the device", "[.racecheck][kernels]") {
  if (!have_device()) return;
  const auto run = [](const core::ScanGradProblem& problem, const core::ScanGradOutputs& outputs) {
    cuda::run_scan_grad(*cuda::Context::open(0), problem, outputs);
  };
  std::vector<ScanSpec> specs = sequential_scans();
  for (const ScanSpec& spec : chunked_scans()) specs.push_back(spec);
  for (ScanSpec spec : specs) {
    spec.options.algorithm = ScanAlgorithm::automatic;
    const ScanGradCase c(spec, true);
    INFO(spec.to_string());
    CHECK(scan_grad_mismatch(c.problem(), run) == "");
  }
}

// Rows and columns: one tile, several, and columns that one block walks through.
TEST_CASE("small associative scans on the device", "[.racecheck][kernels]") {
  if (!have_device()) return;
  const auto run = [](const core::AssociativeProblem& problem, const core::AssociativeOutputs& outputs) {
    cuda::run_associative(*cuda::Context::open(0), problem, outputs);
  };
  core::AssociativeOptions tiles;
  tiles.block_size = 64;
  for (const auto op : {AssociativeOp::cumsum, AssociativeOp::linear_recurrence}) {
    CHECK(associative_mismatch(associative_case(op, Dtype::f32, {3, 300}, 1, {}), run) == "");
    CHECK(associative_mismatch(associative_case(op, Dtype::f32, {3, 5000}, 1, tiles), run) == "");
    CHECK(associative_mismatch(associative_case(op, Dtype::f32, {2, 700, 5}, 1, tiles), run) == "");
    CHECK(associative_mismatch(associative_case(op, Dtype::f32, {10000, 19}, 0, {}), run) == "");
  }
}

TEST_CASE("a small AR-SSM layer on the device", "[.racecheck][kernels]") {
  if (!have_device()) return;
  const SemiseparableTensors tensors(40, 17, 33);
  const auto weights = core::load_semiseparable(tensors.views(), true);
  const auto layer = cuda::load_semiseparable(cuda::Context::open(0), *weights);
  for (const bool bidirectional : {false, true}) {
    CHECK(semiseparable_mismatch(*layer, *weights, 2, 130, bidirectional) == "");
  }
}

void check_gradients(const std::vector<NamedPolicy>& policies, std::int64_t seq) {
  const auto context = cuda::Context::open(0);
  const cuda::ContextGuard guard(*context);
  for (const NamedPolicy& policy : policies) {
    CAPTURE(policy.name);
    cuda::PolicyGradient gradient(context, policy.weights);
    const PolicyGrad run = [&](const core::PolicySequences& sequences, const float* d_outs,
                               const core::PolicyGradOutputs& outputs) {
      gradient.run(sequences, d_outs, outputs);
    };
    check_policy_grad(run, *policy.weights, policy_grad_case(policy.weights->config, 2, seq, true));
  }
}

TEST_CASE("the gradient of small policies on the device, by one call", "[.racecheck][kernels]") {
  if (have_device()) check_gradients(small_policies(), 33);
}

TEST_CASE("the gradient of small gated policies on the device, by one call", "[.racecheck][kernels][gated]") {
  if (have_device()) check_gradients(small_gated_policies(), 5);
}

}  // namespace
}  // namespace exphil::test
