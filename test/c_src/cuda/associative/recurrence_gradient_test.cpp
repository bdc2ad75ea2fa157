// The gradient of a linear recurrence on a real device, and its kernels on the emulated grid.
#include "cuda/associative/recurrence_gradient.hpp"

#include <cuda.h>

#include "cuda/cuda_test.hpp"
#include "cuda/device/places.hpp"
#include "cuda/device/stream.hpp"
#include "cuda/emulated_gpu.hpp"
#include "support/catch.hpp"
#include "support/recurrence_grad_case.hpp"

namespace exphil::test {
namespace {

using core::Dtype;
using core::Shape;

// Copies the tensors to the device, runs, and copies the gradients back.
void run_on_device(const core::RecurrenceGradProblem& given, const core::RecurrenceGradOutputs& outputs) {
  cuda::Context& context = *cuda::Context::open(0);
  const cuda::ContextGuard guard(context);
  const core::AssociativeProblem& p = given.scan;
  const std::size_t bytes = p.bytes();
  const std::size_t columns = static_cast<std::size_t>(p.sequences()) * core::dtype_size(p.dtype);
  const cuda::RecurrenceGradPlan plan = cuda::plan_recurrence_grad(given);
  cuda::Places places;
  const std::size_t a = places.take(bytes), h = places.take(bytes), dh = places.take(bytes);
  const std::size_t initial = places.take(columns), da = places.take(bytes), db = places.take(bytes);
  const std::size_t d_initial = places.take(columns), scratch = places.take(plan.scratch);
  const cuda::DeviceBuffer memory = context.device_pool().allocate(places.bytes());
  cuda::StreamLease stream(context);
  const auto tensor = [&](std::size_t place) { return reinterpret_cast<void*>(memory.address() + place); };
  const auto upload = [&](std::size_t place, const void* from, std::size_t size) {
    context.check(cuda::driver().cuMemcpyHtoDAsync(memory.address() + place, from, size, stream.handle()),
                  "upload");
  };
  const auto download = [&](void* to, std::size_t place, std::size_t size) {
    context.check(cuda::driver().cuMemcpyDtoHAsync(to, memory.address() + place, size, stream.handle()),
                  "download");
  };
  upload(a, p.a, bytes), upload(h, given.h, bytes), upload(dh, given.dh, bytes);
  if (p.initial != nullptr) upload(initial, p.initial, columns);
  core::RecurrenceGradProblem problem = given;
  problem.scan.a = tensor(a), problem.h = tensor(h), problem.dh = tensor(dh);
  if (p.initial != nullptr) problem.scan.initial = tensor(initial);
  const bool of_initial = outputs.initial != nullptr;
  cuda::prepare_recurrence_grad(context, plan);
  cuda::enqueue_recurrence_grad(context, plan, problem,
                                {tensor(da), tensor(db), of_initial ? tensor(d_initial) : nullptr},
                                memory.address() + scratch, stream.handle());
  download(outputs.a, da, bytes), download(outputs.b, db, bytes);
  if (of_initial) download(outputs.initial, d_initial, columns);
  stream.synchronize();
}

void check_lengths(std::initializer_list<std::int64_t> lengths) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::c64}) {
    for (const std::int64_t length : lengths) {
      for (const bool reverse : {false, true}) {
        for (const bool initial : {false, true}) {
          const auto columns = recurrence_grad_case(dtype, {2, length, 5}, 1, reverse, initial);
          CHECK(recurrence_grad_mismatch(columns, run_on_device) == "");
          const auto rows = recurrence_grad_case(dtype, {3, length}, 1, reverse, initial);
          CHECK(recurrence_grad_mismatch(rows, run_on_device) == "");
        }
      }
    }
  }
}

TEST_CASE("a recurrence's gradient on the device", "[gpu]") {
  if (!have_device()) return;
  check_lengths({1, 2, 33, 300, 20001});
}

// Few enough steps for compute-sanitizer's racecheck: .ci/sanitize_gpu.
TEST_CASE("a recurrence's gradient of few steps on the device", "[.racecheck][kernels]") {
  if (!have_device()) return;
  check_lengths({300, 5000});
}

TEST_CASE("a recurrence's gradient with its kernels on the CPU", "[.emulated_recurrence]") {
  emulate_launches();
  check_lengths({1, 33, 300});
  CHECK(emulated_launches("associative_scan") == 96);
}

TEST_CASE("the kernels of a recurrence's gradient run without a GPU", "[cuda][emulated]") {
  require_emulated("[.emulated_recurrence]");
}

}  // namespace
}  // namespace exphil::test
