#include "cuda/associative/scan.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "cuda/device/places.hpp"
#include "cuda/device/upload.hpp"
#include "cuda/jit/launch.hpp"

namespace exphil::cuda {

namespace {

// Results from the backend's pool are pinned, so the device writes them directly.
void copy_out(Context& context, void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  context.check(driver().cuMemcpyDtoHAsync(to, from, bytes, stream), "cuMemcpyDtoHAsync");
}

std::size_t initial_bytes(const core::AssociativeProblem& problem) {
  return static_cast<std::size_t>(problem.sequences()) * core::dtype_size(problem.dtype);
}

// Offsets of one call's tensors in device memory: the inputs, the results, the scratch.
struct Workspace {
  std::size_t initial, a, x, y, y_reverse, scratch, bytes;

  Workspace(const core::AssociativeProblem& problem, const AssociativePlan& plan) {
    Places places;
    initial = places.take(problem.initial != nullptr ? initial_bytes(problem) : 0);
    a = places.take(problem.a != nullptr ? problem.bytes() : 0);
    x = places.take(problem.bytes());
    y = places.take(problem.bytes());
    y_reverse = problem.direction == core::Direction::both ? places.take(problem.bytes()) : y;
    scratch = places.bytes();
    bytes = scratch + plan.scratch_bytes();
  }
};

}  // namespace

void clear_associative(Context& context, const AssociativePlan& plan, CUdeviceptr scratch, CUstream stream) {
  if (plan.exchange_bytes == 0) return;
  context.check(driver().cuMemsetD8Async(scratch, 0, plan.exchange_bytes, stream), "cuMemsetD8Async");
}

void launch_associative(Context& context, const AssociativePlan& plan, const AssociativeTensors& tensors,
                        CUdeviceptr scratch, CUstream stream) {
  associative::Arguments arguments = plan.arguments;
  arguments.a = tensors.a;
  arguments.x = tensors.x;
  arguments.initial = tensors.initial;
  arguments.y = tensors.y;
  arguments.y_reverse = tensors.y_reverse;
  arguments.h = tensors.h, arguments.da = tensors.da, arguments.d_initial = tensors.d_initial;
  if (plan.exchange_bytes > 0) arguments.exchange = reinterpret_cast<unsigned*>(scratch);
  launch(context, context.kernels().get(plan.spec), plan.grid, plan.block, 0, stream, arguments);
}

void run_associative(Context& context, const core::AssociativeProblem& problem,
                     const core::AssociativeOutputs& outputs) {
  if (problem.elements() == 0) return;
  const ContextGuard guard(context);
  const AssociativePlan plan = plan_associative(problem);
  const Workspace at(problem, plan);
  const std::size_t bytes = problem.bytes();
  // Destroyed in reverse order: the stream is idle before its memory is returned to the pool.
  const DeviceBuffer memory = context.device_pool().allocate(at.bytes);
  const CUdeviceptr base = memory.address();
  const auto tensor = [&](std::size_t place) { return reinterpret_cast<void*>(base + place); };
  std::unique_ptr<Upload> upload;
  StreamLease stream(context);
  const auto scan = [&](std::size_t) {
    clear_associative(context, plan, base + at.scratch, stream.handle());
    launch_associative(context, plan,
                       {tensor(at.a), tensor(at.x), tensor(at.initial), tensor(at.y), tensor(at.y_reverse)},
                       base + at.scratch, stream.handle());
    copy_out(context, outputs.y, base + at.y, bytes, stream.handle());
    if (at.y_reverse != at.y)
      copy_out(context, outputs.y_reverse, base + at.y_reverse, bytes, stream.handle());
  };
  std::vector<ImageSegment> segments;
  if (problem.initial != nullptr) {
    segments.push_back({problem.initial, at.initial, initial_bytes(problem)});
  }
  if (problem.a != nullptr) segments.push_back({problem.a, at.a, bytes});
  segments.push_back({problem.x, at.x, bytes});
  upload = std::make_unique<Upload>(context, stream.handle(), base, std::move(segments),
                                    std::vector<std::size_t>{at.x + bytes}, scan, problem.on_device);
  upload->run();
  stream.synchronize();
}

}  // namespace exphil::cuda
