// Policies of Edifice and ExPhil on a GPU: the expected outputs, the same bits however they are run, and a
// use for every tensor. Skipped, with a line, where there is no device.
#include "cuda/cuda_test.hpp"
#include "cuda/device/context.hpp"
#include "cuda/policy/loader.hpp"
#include "support/catch.hpp"
#include "support/exphil_checks.hpp"
#include "support/exphil_data.hpp"

namespace exphil::test {

namespace {

std::unique_ptr<core::Policy> make(std::shared_ptr<const core::PolicyWeights> weights) {
  core::PolicyOptions options;
  options.max_sessions = 64;
  return cuda::load_policy(cuda::Context::open(0), std::move(weights), options);
}

}  // namespace

TEST_CASE("each tensor of a file is used on the GPU", "[cuda][gpu][policy][exphil]") {
  if (have_device() && have_exphil()) check_every_tensor_is_used(make);
}

TEST_CASE("the expected outputs of every file on the GPU", "[cuda][gpu][policy][exphil]") {
  if (!have_device() || !have_exphil()) return;
  check_expected_outputs(make);
  check_every_position(make);
  check_other_options(make);
  check_other_outputs(make);
}

TEST_CASE("steps, batches, prefill and windows of every dialect give the same bits on the GPU",
          "[cuda][gpu][policy][exphil]") {
  if (have_device() && have_exphil()) check_same_bits(make);
}

}  // namespace exphil::test
