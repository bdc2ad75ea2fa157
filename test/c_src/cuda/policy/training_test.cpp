// Steps of training on CUDA against those of the CPU: on an emulated GPU, and on a real one.
#include "cuda/policy/training.hpp"

#include "cuda/cuda_test.hpp"
#include "cuda/emulated_gpu.hpp"
#include "host/policy/training.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/faults.hpp"
#include "support/mamba3_policy.hpp"
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
  const PolicyForm mimo = mamba3_forms(5, 4)[2];
  check({{mimo.name, mimo.weights}}, 3, 7);
  check_refused_training(on_device(), TrainingCase(all.front().weights, false, 2, 5, true));
  CHECK(emulated_launches("policy_training_adamw") > 0);
}

// A step that fails leaves the numbers of the one before it, and the next one can be made.
int fail_step(const std::shared_ptr<const core::PolicyWeights>& weights, const Failing& failing) {
  TrainingCase c(weights, false, 2, 5, false);
  const auto training = c.make(on_device());
  training->step(c.given(), c.rule(1));
  return fail_at_each_point("step of training", failing, [&] {
    const auto before = std::make_shared<TrainingState>(state_of(*training));
    return Attempt{[&, before] { training->step(c.given(), c.rule(before->steps + 1)); },
                   [&, before](bool threw) {
                     if (threw) {
                       CHECK(same_bits(state_of(*training), *before));
                       training->step(c.given(), c.rule(before->steps + 1));
                     }
                     CHECK(state_of(*training).steps == before->steps + 1);
                   }};
  });
}

int fail_beginning(const std::shared_ptr<const core::PolicyWeights>& weights, const Failing& failing) {
  TrainingCase c(weights, true, 1, 2, false);
  const MakeTraining train = on_device();
  const TrainingState start = state_of(*c.make(train));
  return fail_at_each_point("beginning of training", failing, [&] {
    return Attempt{[&] {
                     c.make(train, {1, start.m, start.v});
                   },
                   [&](bool) { CHECK(cuda::Context::open(0)->device_pool().held_bytes() == 0); }};
  });
}

TEST_CASE("every driver call and allocation of training fails once", "[.training_faults]") {
  emulate_launches();
  fake().pause_failing = pause_failing_allocations;
  const auto weights = every_small_policy().front().weights;
  for (const int result : {kInvalidValue, kOutOfMemory}) {
    CHECK(fail_step(weights, failing_driver_calls(result)) > 20);
    CHECK(fail_beginning(weights, failing_driver_calls(result)) > 10);
  }
  CHECK(fail_step(weights, fail_allocation) > 20);
  CHECK(fail_beginning(weights, fail_allocation) > 10);
  const auto context = cuda::Context::open(0);
  CHECK(context->device_pool().held_bytes() == 0);
  CHECK(context->pinned_pool().held_bytes() == 0);
  CHECK(fake().context_depth() == 0);
}

TEST_CASE("training whose calls fail keeps its numbers", "[cuda][policy][training][faults][emulated]") {
  require_passed(run_over_emulated("[.training_faults]"));
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

TEST_CASE("a small step of training under racecheck", "[.racecheck][kernels][training]") {
  if (!have_device()) return;
  check({every_small_policy().front()}, 2, 5);
}

TEST_CASE("training of the shared policy on the GPU", "[cuda][gpu][policy][training][melee]") {
  if (!have_device() || !have_melee()) return;
  check({{"melee", melee_policy()}}, 32, 60);
}

}  // namespace
}  // namespace exphil::test
