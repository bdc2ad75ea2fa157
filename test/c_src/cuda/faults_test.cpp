// The CUDA backend on an emulated GPU (emulated_gpu.hpp) while every driver call and every allocation of
// every operation fails once, and after its device was lost. Those of policies are in
// cuda/policy/faults_test.cpp.
#include "support/faults.hpp"
#include "cuda/backend.hpp"
#include "cuda/device/context.hpp"
#include "cuda/emulated_gpu.hpp"
#include "host/backend.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace exphil::test {
namespace {

// One after another on the emulated GPU takes seconds: two of the operations, which differ in their inputs.
std::vector<Operation> operations() {
  return backend_operations(cuda::open_cuda_backend(0),
                            {core::AssociativeOp::cummax, core::AssociativeOp::linear_recurrence});
}

// What a call that has ended holds of the device is what was held before it.
std::function<void()> nothing_kept(const std::shared_ptr<cuda::Context>& context) {
  const std::size_t device = context->device_pool().held_bytes();
  return [=] {
    CHECK(context->device_pool().held_bytes() == device);
    CHECK(context->pinned_pool().held_bytes() == 0);
    CHECK(fake().context_depth() == 0);
  };
}

}  // namespace

TEST_CASE("every driver call of a backend's operations fails once", "[.backend_driver_faults]") {
  emulate_launches();
  const auto all = operations();
  for (const int result : {kInvalidValue, kOutOfMemory}) {
    fail_operations(all, failing_driver_calls(result), nothing_kept(cuda::Context::open(0)));
  }
}

TEST_CASE("every allocation of a backend's operations fails once", "[.backend_allocation_faults]") {
  emulate_launches();
  fake().pause_failing = pause_failing_allocations;
  const auto all = operations();
  fail_operations(all, fail_allocation, nothing_kept(cuda::Context::open(0)));
}

TEST_CASE("after a device was lost every operation says so, and the host backend works", "[.backend_lost]") {
  emulate_launches();
  std::vector<Operation> all = operations();
  fake().fail_any(kIllegalAddress, 1);
  CHECK_THROWS_AS(all[0].run(all[0].results), core::Error);
  for (Operation& operation : all) {
    if (operation.on_host) continue;
    INFO(operation.name);
    fake().fail_any(kInvalidValue, 0);
    CHECK(thrown_by([&] { operation.run(operation.results); }).kind() == core::ErrorKind::device_lost);
    CHECK_FALSE(fake().fail_any(0, -1));  // at once: no call of the driver that does work was made
  }
  for (Operation& operation : backend_operations(host::host_backend(), {core::AssociativeOp::cumsum})) {
    operation.run(operation.results);
  }
}

TEST_CASE("the operations of a backend whose driver calls fail are errors and keep nothing",
          "[cuda][faults][emulated]") {
  require_passed(run_over_emulated("[.backend_driver_faults]"));
  require_passed(run_over_emulated("[.backend_lost]"));
}

// Some 15 s: with `make test_variants`.
TEST_CASE("the operations of a backend whose allocations fail are errors and keep nothing",
          "[cuda][faults][emulated][.variants]") {
  require_passed(run_over_emulated("[.backend_allocation_faults]"));
}

}  // namespace exphil::test
