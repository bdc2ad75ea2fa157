#include "cuda/associative/recurrence_gradient.hpp"

#include "core/error.hpp"
#include "cuda/associative/scan.hpp"
#include "cuda/device/places.hpp"
#include "cuda/jit/launch.hpp"
#include "kernels/associative/recurrence_gradient.cuh"

namespace exphil::cuda {

namespace {

using core::Dtype;

KernelSpec spec(const char* entry, Dtype dtype) {
  return {"associative/recurrence_gradient.cu", entry, {define("ELEMENT", static_cast<int>(dtype))}};
}
KernelSpec prepare_spec(Dtype dtype) {
  return spec("recurrence_grad_prepare", dtype);
}
KernelSpec finish_spec(Dtype dtype) {
  return spec("recurrence_grad_finish", dtype);
}

bool is_half(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16;
}

void* at(CUdeviceptr scratch, std::size_t place) {
  return reinterpret_cast<void*>(scratch + place);
}

}  // namespace

RecurrenceGradPlan plan_recurrence_grad(const core::RecurrenceGradProblem& problem) {
  const core::AssociativeProblem scan = core::recurrence_grad_scan(problem);
  if (scan.elements() > kMostGridBlocks * associative::kRecurrenceGradThreads) {
    core::fail(core::ErrorKind::limit_exceeded, "a", "a has ", scan.elements(), " elements; the limit is ",
               kMostGridBlocks * associative::kRecurrenceGradThreads);
  }
  RecurrenceGradPlan plan;
  plan.scan = plan_associative(scan);
  plan.prepare = prepare_spec(problem.scan.dtype);
  plan.finish = finish_spec(problem.scan.dtype);
  Places places;
  plan.decays = places.take(scan.bytes());
  plan.dh = places.take(is_half(problem.scan.dtype) ? scan.bytes() : 0);
  plan.sums = places.take(scan.bytes());
  plan.exchange = places.take(plan.scan.scratch_bytes());
  plan.scratch = places.bytes();
  return plan;
}

void prepare_recurrence_grad(Context& context, const RecurrenceGradPlan& plan) {
  context.kernels().prepare({plan.prepare, plan.scan.spec, plan.finish});
}

void enqueue_recurrence_grad(Context& context, const RecurrenceGradPlan& plan,
                             const core::RecurrenceGradProblem& problem,
                             const core::RecurrenceGradOutputs& outputs, CUdeviceptr scratch,
                             CUstream stream) {
  const core::AssociativeProblem& p = problem.scan;
  associative::RecurrenceGradArguments arguments{};
  arguments.a = p.a, arguments.h = problem.h, arguments.dh = problem.dh, arguments.initial = p.initial;
  arguments.decays = at(scratch, plan.decays);
  if (is_half(p.dtype)) arguments.dh_wide = at(scratch, plan.dh);
  arguments.sums = at(scratch, plan.sums);
  arguments.da = outputs.a, arguments.db = outputs.b, arguments.d_initial = outputs.initial;
  arguments.shape = {p.length, p.inner, p.direction == core::Direction::reverse};
  arguments.elements = p.elements();
  constexpr std::int64_t kThreads = associative::kRecurrenceGradThreads;
  const Dim3 grid{static_cast<unsigned>((arguments.elements + kThreads - 1) / kThreads)};
  const Dim3 block{static_cast<unsigned>(kThreads)};

  launch(context, context.kernels().get(plan.prepare), grid, block, 0, stream, arguments);
  AssociativeTensors scan;
  scan.a = arguments.decays;
  scan.x = arguments.dh_wide != nullptr ? arguments.dh_wide : arguments.dh;
  scan.y = scan.y_reverse = at(scratch, plan.sums);
  clear_associative(context, plan.scan, scratch + plan.exchange, stream);
  launch_associative(context, plan.scan, scan, scratch + plan.exchange, stream);
  launch(context, context.kernels().get(plan.finish), grid, block, 0, stream, arguments);
}

std::vector<KernelSpec> recurrence_grad_kernel_variants() {
  std::vector<KernelSpec> specs;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::c64}) {
    specs.push_back(prepare_spec(dtype));
    specs.push_back(finish_spec(dtype));
  }
  return specs;
}

}  // namespace exphil::cuda
