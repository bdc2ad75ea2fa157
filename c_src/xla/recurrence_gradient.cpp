// exphil_linear_recurrence_grad: the gradient of a linear recurrence whose results are known, as a custom
// call.
//
// Arguments: a, h, dh; or with the attribute operands = "initial_state" a, initial_state, h, dh, as in
// Edifice's fused_linear_scan_backward. Results: da, db, and with an initial state d_initial_state, each with
// the shape and type of a, a and initial_state. Attributes: axis, direction (forward or reverse), operands.
#include "core/associative/recurrence_gradient.hpp"
#include "core/error.hpp"
#include "host/associative/scan.hpp"
#include "xla/associative_frame.hpp"
#include "xla/platforms.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/associative/recurrence_gradient.hpp"
#endif

namespace exphil::xla {

namespace {

struct Call {
  core::RecurrenceGradProblem problem;
  core::RecurrenceGradOutputs outputs;
};

Call read_call(const Frame& frame) {
  frame.require_known("axis direction operands");
  core::RecurrenceGradInputs inputs;
  inputs.initial_state = read_initial_state(frame, 1);
  std::int64_t index = 0;
  inputs.a = frame.argument(index++, "a");
  if (inputs.initial_state) ++index;
  inputs.h = frame.argument(index++, "h");
  inputs.dh = frame.argument(index++, "dh");
  require_arguments(frame, index);
  Call call;
  call.problem = core::validate_recurrence_grad(inputs, read_associative_options(frame));
  call.outputs.a = read_like(frame, 0, "da", inputs.a);
  call.outputs.b = read_like(frame, 1, "db", inputs.a);
  if (inputs.initial_state)
    call.outputs.initial = read_like(frame, 2, "d_initial_state", *inputs.initial_state);
  require_results(frame, inputs.initial_state ? 3 : 2);
  return call;
}

void gradient_host(const Frame& frame) {
  const Call call = read_call(frame);
  if (frame.executing()) core::recurrence_grad(call.problem, call.outputs, host::associative_scan);
}

#ifdef EXPHIL_CUDA
// Without steps only the gradient of the initial state is to be written: zeros.
void clear_initial(cuda::Context& context, const Frame& frame, const Call& call) {
  const core::AssociativeProblem& p = call.problem.scan;
  const std::size_t bytes = static_cast<std::size_t>(p.sequences()) * core::dtype_size(p.dtype);
  if (call.outputs.initial == nullptr || bytes == 0) return;
  context.check(cuda::driver().cuMemsetD8Async(address_of(call.outputs.initial), 0, bytes, stream_of(frame)),
                "cuMemsetD8Async");
}

// Also runs in the initialise stage, where it compiles the kernels.
void gradient_cuda(const Frame& frame) {
  const Call call = read_call(frame);
  cuda::Context& context = context_of(frame);
  const cuda::ContextGuard guard(context);
  if (call.problem.scan.elements() == 0) {
    if (frame.executing()) clear_initial(context, frame, call);
    return;
  }
  const cuda::RecurrenceGradPlan plan = cuda::plan_recurrence_grad(call.problem);
  if (!frame.executing()) return cuda::prepare_recurrence_grad(context, plan);
  const Scratch scratch(frame, plan.scratch);
  cuda::enqueue_recurrence_grad(context, plan, call.problem, call.outputs, address_of(scratch.data()),
                                stream_of(frame));
}
#endif

}  // namespace

}  // namespace exphil::xla

EXPHIL_XLA_HANDLER(exphil_linear_recurrence_grad_host, exphil::xla::kHostTraits, exphil::xla::gradient_host)
#ifdef EXPHIL_CUDA
EXPHIL_XLA_HANDLER(exphil_linear_recurrence_grad_cuda, exphil::xla::kScratchTraits,
                   exphil::xla::gradient_cuda)
#endif
