#include "cuda/associative/recurrence_gradient.hpp"

#include "cuda/associative/scan.hpp"
#include "cuda/jit/launch.hpp"

namespace exphil::cuda {

RecurrenceGradPlan plan_recurrence_grad(const core::RecurrenceGradProblem& problem) {
  core::AssociativeProblem scan = core::recurrence_grad_scan(problem);
  scan.dtype = problem.scan.dtype;  // halves are widened as they are read, and rounded once
  RecurrenceGradPlan plan;
  plan.scan = plan_associative(scan, {}, true);
  plan.scratch = plan.scan.scratch_bytes();
  return plan;
}

void prepare_recurrence_grad(Context& context, const RecurrenceGradPlan& plan) {
  context.kernels().prepare({plan.scan.spec});
}

void enqueue_recurrence_grad(Context& context, const RecurrenceGradPlan& plan,
                             const core::RecurrenceGradProblem& problem,
                             const core::RecurrenceGradOutputs& outputs, CUdeviceptr scratch,
                             CUstream stream) {
  AssociativeTensors tensors;
  tensors.a = problem.scan.a, tensors.initial = problem.scan.initial;
  tensors.x = problem.dh, tensors.h = problem.h;
  tensors.y = tensors.y_reverse = outputs.b;
  tensors.da = outputs.a, tensors.d_initial = outputs.initial;
  clear_associative(context, plan.scan, scratch, stream);
  launch_associative(context, plan.scan, tensors, scratch, stream);
}

}  // namespace exphil::cuda
