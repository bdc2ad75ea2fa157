// The gradient of a policy on CUDA against the float64 oracle, and its bits: on an emulated GPU, and on a
// real one. The same checks as those of host/policy/gradient_test.cpp.
#include "cuda/policy/gradient.hpp"

#include <algorithm>

#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "cuda/policy/gradient_on_device.hpp"
#include "support/catch.hpp"
#include "support/exphil_data.hpp"
#include "support/melee.hpp"
#include "support/policy.hpp"

namespace exphil::test {
namespace {

// Sizes on both sides of a tile of the products, and heads that are not multiples of four.
PolicySpec wide_spec() {
  PolicySpec spec;
  spec.d_input = 19, spec.d_model = 67, spec.d_inner = 70, spec.d_state = 17, spec.dt_rank = 5,
  spec.d_output = 20;
  return spec;
}

// Emulated: each shape of a scan is a kernel to compile, and each thread a fibre.
TEST_CASE("gradients of small policies on an emulated GPU", "[.emulated_policy_gradient]") {
  emulate_launches();
  for (const NamedPolicy& policy : small_policies()) {
    CAPTURE(policy.name);
    const PolicyGrad grad = gradient_on_device(policy.weights);
    for (const auto& [seq, with_state] : {std::pair{7, false}, {37, true}}) {
      CAPTURE(seq);
      check_policy_grad(grad, *policy.weights, policy_grad_case(policy.weights->config, 3, seq, with_state));
    }
  }
}

TEST_CASE("the bits of gradients on an emulated GPU", "[.emulated_policy_gradient]") {
  emulate_launches();
  const auto wide = make_policy(wide_spec());
  const PolicyGrad grad = gradient_on_device(wide);
  check_policy_grad(grad, *wide, policy_grad_case(wide->config, 9, 33, true));
  check_policy_grad_bits(grad, *wide, policy_grad_case(wide->config, 3, 33, false));
  check_policy_grad_nan(grad, *wide, 20);
  const auto best = cuda::best_product_unit(cuda::Context::open(0)->properties());
  for (const auto unit :
       {cuda::ProductUnit::plain, cuda::ProductUnit::tensor_cores, cuda::ProductUnit::warpgroups}) {
    CHECK((emulated_launches(cuda::gradient_product_spec(unit).entry) > 0) == (unit == best));
  }
}

TEST_CASE("the gradient of a policy runs without a GPU", "[cuda][policy][gradient][emulated]") {
  for (const char* capability : {"75", "80", "90"}) {  // without tf32, with it, and with warpgroups
    CAPTURE(capability);
    require_emulated("[.emulated_policy_gradient]", {{"FAKE_CUDA_CAPABILITY", capability}});
  }
}

TEST_CASE("the gradient of a policy on the GPU is the oracle's", "[cuda][gpu][policy][gradient]") {
  if (!have_device()) return;
  for (const NamedPolicy& policy : small_policies()) {
    CAPTURE(policy.name);
    const PolicyGrad grad = gradient_on_device(policy.weights);
    for (const std::int64_t seq : {1, 2, 7, 16, 17, 31, 32, 33, 64, 65, 130}) {
      CAPTURE(seq);
      for (const bool with_state : {false, true}) {
        check_policy_grad(grad, *policy.weights,
                          policy_grad_case(policy.weights->config, 3, seq, with_state));
      }
    }
  }
  const auto wide = make_policy(wide_spec());
  for (const std::int64_t batch : {1, 2, 9, 40}) {
    check_policy_grad(gradient_on_device(wide), *wide, policy_grad_case(wide->config, batch, 33, true));
  }
}

TEST_CASE("the gradient of the shared policy on the GPU", "[cuda][gpu][policy][gradient][melee]") {
  if (!have_device() || !have_melee()) return;
  const auto policy = melee_policy();
  const Match match = melee_match();
  for (const std::int64_t batch : {2, 32}) {
    PolicyGradCase c = policy_grad_case(policy->config, batch, 60, false);
    std::copy_n(match.obs_at(0), c.frames.size(), c.frames.begin());
    check_policy_grad(gradient_on_device(policy), *policy, c);
  }
}

TEST_CASE("the gradient of Edifice's and ExPhil's policies on the GPU",
          "[cuda][gpu][policy][gradient][exphil]") {
  if (!have_device() || !have_exphil()) return;
  for (const char* file :
       {"edifice_mamba/mamba.nx", "edifice_mamba2/short_window.nx", "exphil_policy/policy.bin"}) {
    CAPTURE(file);
    const auto policy = exphil_policy(file);
    PolicyGradCase c = policy_grad_case(policy->config, 1, 20, false);
    const std::vector<float> frames = exphil_frames();
    std::copy_n(frames.begin() + 200 * policy->config.d_input, c.frames.size(), c.frames.begin());
    check_policy_grad(gradient_on_device(policy), *policy, c, 5e-5);
  }
}

TEST_CASE("a policy's gradient on the GPU has the same bits in every run and batch",
          "[cuda][gpu][policy][gradient]") {
  if (!have_device()) return;
  for (const NamedPolicy& policy : small_policies()) {
    CAPTURE(policy.name);
    const PolicyGrad grad = gradient_on_device(policy.weights);
    // More rows than kGradientRows: two groups.
    check_policy_grad_bits(grad, *policy.weights, policy_grad_case(policy.weights->config, 15, 300, true));
  }
  const auto wide = make_policy(wide_spec());
  check_policy_grad_nan(gradient_on_device(wide), *wide, 20);
}

}  // namespace
}  // namespace exphil::test
