// exphil_scan_cumulative and exphil_linear_recurrence: associative scans along one axis as custom calls.
//
// exphil_scan_cumulative     arguments: x; attributes op (cumsum, cumprod, cummax, cummin), compensated
// (boolean) exphil_linear_recurrence   arguments: a, b; h_t = a_t h_(t-1) + b_t from h = 0 Attributes of
// both: axis (integer, negative counts from the last), direction (forward, reverse or both). Results: y, of
// x's shape and type, and y_reverse where direction is both.
#include "core/associative/problem.hpp"
#include "core/error.hpp"
#include "core/names.hpp"
#include "host/associative/scan.hpp"
#include "xla/platforms.hpp"
#ifdef EXPHIL_CUDA
#include "cuda/associative/plan.hpp"
#include "cuda/associative/scan.hpp"
#endif

namespace exphil::xla {

namespace {

using core::AssociativeOp;

struct Call {
  core::AssociativeProblem problem;
  core::AssociativeOutputs outputs;
};

Call read_call(const Frame& frame, AssociativeOp op, const char* known) {
  frame.require_known(known);
  const bool recurrence = op == AssociativeOp::linear_recurrence;
  core::AssociativeInputs inputs;
  if (recurrence) inputs.a = frame.argument(0, "a");
  inputs.x = frame.argument(recurrence ? 1 : 0, recurrence ? "b" : "x");
  core::AssociativeOptions options;
  options.axis = frame.integer("axis", 0);
  options.direction = core::direction_named(frame.text("direction", "forward"), "direction");
  options.compensated = !recurrence && frame.boolean("compensated", false);
  Call call;
  call.problem = core::validate_associative(op, inputs, options);
  const bool both = options.direction == core::Direction::both;
  const core::TensorView y = frame.result(0, "y");
  require_result(y, "y", inputs.x.dtype, inputs.x.shape);
  call.outputs.y = const_cast<void*>(y.data);
  if (both) {
    const core::TensorView y_reverse = frame.result(1, "y_reverse");
    require_result(y_reverse, "y_reverse", inputs.x.dtype, inputs.x.shape);
    call.outputs.y_reverse = const_cast<void*>(y_reverse.data);
  }
  if (frame.arguments() != (recurrence ? 2 : 1) || frame.results() != (both ? 2 : 1)) {
    core::fail(core::ErrorKind::invalid_argument, "", "the call has ", frame.arguments(), " arguments and ",
               frame.results(), " results; expected ", recurrence ? 2 : 1, " and ", both ? 2 : 1);
  }
  return call;
}

Call read_cumulative(const Frame& frame) {
  const AssociativeOp op = core::associative_op_named(frame.text("op", "cumsum"), "op");
  if (op == AssociativeOp::linear_recurrence) {
    core::fail(core::ErrorKind::invalid_argument, "op", "linear_recurrence is exphil_linear_recurrence");
  }
  return read_call(frame, op, "op axis direction compensated");
}

Call read_recurrence(const Frame& frame) {
  return read_call(frame, AssociativeOp::linear_recurrence, "axis direction");
}

template <Call (*Read)(const Frame&)>
void run_host(const Frame& frame) {
  const Call call = Read(frame);
  if (frame.executing()) host::associative_scan(call.problem, call.outputs);
}

#ifdef EXPHIL_CUDA
template <Call (*Read)(const Frame&)>
void run_cuda(const Frame& frame) {
  const Call call = Read(frame);
  if (call.problem.elements() == 0) return;
  cuda::Context& context = context_of(frame);
  const cuda::ContextGuard guard(context);
  const cuda::AssociativePlan plan = cuda::plan_associative(call.problem);
  if (!frame.executing()) {
    context.kernels().get(plan.spec);
    return;
  }
  const Scratch scratch(frame, plan.scratch_bytes());
  const CUstream stream = stream_of(frame);
  const CUdeviceptr at = address_of(scratch.data());
  cuda::clear_associative(context, plan, at, stream);
  void* y_reverse = call.outputs.y_reverse != nullptr ? call.outputs.y_reverse : call.outputs.y;
  cuda::launch_associative(context, plan, call.problem.a, call.problem.x, call.outputs.y, y_reverse, at,
                           stream);
}
#endif

}  // namespace

}  // namespace exphil::xla

EXPHIL_XLA_HANDLER(exphil_scan_cumulative_host, exphil::xla::kHostTraits,
                   exphil::xla::run_host<exphil::xla::read_cumulative>)
EXPHIL_XLA_HANDLER(exphil_linear_recurrence_host, exphil::xla::kHostTraits,
                   exphil::xla::run_host<exphil::xla::read_recurrence>)
#ifdef EXPHIL_CUDA
EXPHIL_XLA_HANDLER(exphil_scan_cumulative_cuda, exphil::xla::kScratchTraits,
                   exphil::xla::run_cuda<exphil::xla::read_cumulative>)
EXPHIL_XLA_HANDLER(exphil_linear_recurrence_cuda, exphil::xla::kScratchTraits,
                   exphil::xla::run_cuda<exphil::xla::read_recurrence>)
#endif
