// Times the operator of Mamba-2 on the GPU, and its gradient: all launches of a call on tensors in device
// memory. Its checks are the tests of tag [gpu][ssd].
//   make build/bench/gpu_ssd
//   EXPHIL_NATIVE_KERNELS=kernels build/bench/gpu_ssd
// Events around the launches, after a fill of 256 MB that empties the L2. The numbers in memory are zeros.
#include <cstdio>

#include "bench/gpu_scan_cases.hpp"
#include "bench/ssd_cases.hpp"
#include "core/error.hpp"
#include "cuda/ssd/scan.hpp"

namespace {

using namespace exphil;
using Id = core::SsdOperand;

constexpr int kRuns = 21;

void time_case(cuda::Context& context, const bench::SsdBenchCase& c, bool gradient) {
  const core::SsdShape shape = bench::shape_of(c, gradient);
  std::vector<cuda::DeviceBuffer> memory;
  const auto take = [&](std::size_t bytes) {
    memory.push_back(context.device_pool().allocate(bytes + 4));
    context.check(cuda::driver().cuMemsetD32Async(memory.back().address(), 0, bytes / 4, nullptr),
                  "cuMemsetD32Async");
    return memory.back().address();
  };
  core::SsdOperands<CUdeviceptr> operands{};
  for (const Id id : core::all_operands<Id>()) {
    if (shape.has(id)) operands[id] = take(core::describe(shape, id).bytes());
  }
  const CUdeviceptr scratch = take(cuda::SsdOperator::scratch(shape));
  cuda::SsdOperator::prepare(context, shape);
  bench::Timer timer(context);
  const cuda::DeviceBuffer unused = context.device_pool().allocate(4);
  const double us = timer.median_us(
      kRuns,
      [&](int, CUstream stream) { cuda::SsdOperator::enqueue(context, stream, shape, operands, scratch); },
      unused.address(), unused.bytes());
  std::printf("%-18s %-8s %9.1f us, scratch %6.1f MB\n", c.name, gradient ? "gradient" : "scan", us,
              static_cast<double>(cuda::SsdOperator::scratch(shape)) / 1e6);
}

}  // namespace

int main() {
  try {
    const auto context = cuda::Context::open(0);
    const cuda::ContextGuard guard(*context);
    std::printf("%s\n", context->properties().name.c_str());
    for (const bench::SsdBenchCase& c : bench::kSsdCases) {
      for (const bool gradient : {false, true}) time_case(*context, c, gradient);
    }
  } catch (const core::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
