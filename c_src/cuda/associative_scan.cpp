#include "cuda/associative_scan.hpp"

#include "cuda/launch.hpp"

namespace exphil::cuda {

namespace {

void copy_in(Context& context, const DeviceBuffer& to, const void* from, std::size_t bytes, CUstream stream) {
  context.check(driver().cuMemcpyHtoDAsync(to.address(), from, bytes, stream), "cuMemcpyHtoDAsync");
}

void copy_out(Context& context, void* to, const DeviceBuffer& from, std::size_t bytes, CUstream stream) {
  context.check(driver().cuMemcpyDtoHAsync(to, from.address(), bytes, stream), "cuMemcpyDtoHAsync");
}

}  // namespace

void clear_associative(Context& context, const AssociativePlan& plan, CUdeviceptr scratch, CUstream stream) {
  if (plan.flag_bytes == 0) return;
  context.check(driver().cuMemsetD8Async(scratch, 0, plan.flag_bytes, stream), "cuMemsetD8Async");
}

void launch_associative(Context& context, const AssociativePlan& plan, const void* a, const void* x, void* y,
                        void* y_reverse, CUdeviceptr scratch, CUstream stream) {
  associative::Arguments arguments = plan.arguments;
  arguments.a = a;
  arguments.x = x;
  arguments.y = y;
  arguments.y_reverse = y_reverse;
  if (plan.flag_bytes > 0) {
    arguments.flags = reinterpret_cast<unsigned*>(scratch);
    arguments.summaries = reinterpret_cast<void*>(scratch + plan.flag_bytes);
    arguments.carries = reinterpret_cast<void*>(scratch + plan.flag_bytes + plan.summary_bytes);
  }
  launch(context, context.kernels().get(plan.spec), plan.grid, plan.block, 0, stream, arguments);
}

void run_associative(Context& context, const core::AssociativeProblem& problem,
                     const core::AssociativeOutputs& outputs) {
  if (problem.elements() == 0) return;
  const ContextGuard guard(context);
  const AssociativePlan plan = plan_associative(problem);
  const std::size_t bytes = problem.bytes();
  const bool both = problem.direction == core::ScanDirection::both;
  DevicePool& pool = context.device_pool();
  // Declared before the stream, which waits for its work before they go.
  DeviceBuffer a, x = pool.allocate(bytes), y = pool.allocate(bytes), y_reverse, scratch;
  if (problem.a != nullptr) a = pool.allocate(bytes);
  if (both) y_reverse = pool.allocate(bytes);
  if (plan.scratch_bytes() > 0) scratch = pool.allocate(plan.scratch_bytes());
  StreamLease stream(context);
  copy_in(context, x, problem.x, bytes, stream.handle());
  if (problem.a != nullptr) copy_in(context, a, problem.a, bytes, stream.handle());
  clear_associative(context, plan, scratch.address(), stream.handle());
  launch_associative(context, plan, a.as<void>(), x.as<void>(), y.as<void>(),
                     both ? y_reverse.as<void>() : y.as<void>(), scratch.address(), stream.handle());
  copy_out(context, outputs.y, y, bytes, stream.handle());
  if (both) copy_out(context, outputs.y_reverse, y_reverse, bytes, stream.handle());
  stream.synchronize();
}

}  // namespace exphil::cuda
