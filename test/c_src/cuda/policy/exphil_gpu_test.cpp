// Policies of Edifice and ExPhil on a GPU: the expected outputs, the same bits however they are run, and a
// use for every tensor. Skipped, with a line, where there is no device.
#include "cuda/cuda_test.hpp"
#include "cuda/policy/load_on_device.hpp"
#include "support/catch.hpp"
#include "support/exphil_checks.hpp"
#include "support/exphil_data.hpp"

namespace exphil::test {

TEST_CASE("each tensor of a file is used on the GPU", "[cuda][gpu][policy][exphil]") {
  if (have_device() && have_exphil()) check_every_tensor_is_used(load_64_on_device);
}

TEST_CASE("the expected outputs of every file on the GPU", "[cuda][gpu][policy][exphil]") {
  if (!have_device() || !have_exphil()) return;
  check_expected_outputs(load_64_on_device);
  check_every_position(load_64_on_device);
  check_other_options(load_64_on_device);
  check_other_outputs(load_64_on_device);
}

TEST_CASE("steps, batches, prefill and windows of every dialect give the same bits on the GPU",
          "[cuda][gpu][policy][exphil]") {
  if (have_device() && have_exphil()) check_same_bits(load_64_on_device);
}

}  // namespace exphil::test
