// Steps of training on CUDA against those of the CPU: on an emulated GPU, and on a real one.
#include "cuda/policy/training.hpp"

#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "host/policy/training.hpp"
#include "support/catch.hpp"
#include "support/melee.hpp"
#include "support/training_case.hpp"

namespace exphil::test {
namespace {

MakeTraining on_device() {
  const auto context = cuda::Context::open(0);
  return [context](auto weights, auto loss, const auto& tensors, auto start) {
    return cuda::make_training(context, std::move(weights), std::move(loss), tensors, std::move(start));
  };
}

void check(const std::vector<NamedPolicy>& policies, std::int64_t batch, std::int64_t seq) {
  for (const NamedPolicy& policy : policies) {
    CAPTURE(policy.name);
    for (const bool squares : {false, true}) {
      check_training(on_device(), host::make_training,
                     TrainingCase(policy.weights, squares, batch, seq, squares));
    }
  }
}

TEST_CASE("training on an emulated GPU", "[.emulated_training]") {
  emulate_launches();
  const std::vector<NamedPolicy> all = every_small_policy();
  check({all.front(), all.back()}, 3, 7);
  check_refused_training(on_device(), TrainingCase(all.front().weights, false, 2, 5, true));
  CHECK(emulated_launches("policy_training_adamw") > 0);
}

TEST_CASE("training on CUDA runs without a GPU", "[cuda][policy][training][emulated]") {
  require_passed(run_over_emulated("[.emulated_training]"));
}

TEST_CASE("training on the GPU is the CPU's", "[cuda][gpu][policy][training]") {
  if (!have_device()) return;
  check(every_small_policy(), 3, 33);
  // More rows than a group of the gradient has.
  check({every_small_policy().front()}, 15, 300);
  check_refused_training(on_device(), TrainingCase(every_small_policy().front().weights, false, 2, 5, true));
}

TEST_CASE("training of the shared policy on the GPU", "[cuda][gpu][policy][training][melee]") {
  if (!have_device() || !have_melee()) return;
  check({{"melee", melee_policy()}}, 32, 60);
}

}  // namespace
}  // namespace exphil::test
