// exphil_scan_cumulative and exphil_linear_recurrence: associative scans along one axis as custom calls.
//
// exphil_scan_cumulative     arguments: x; attributes op (cumsum, cumprod, cummax, cummin), compensated
// (boolean) exphil_linear_recurrence   arguments: a, b, and the initial state where the attribute operands is
// "initial_state":
//                            h_t = a_t h_(t-1) + b_t from h = the initial state, or 0
//
// Attributes of both: axis (integer, negative counts from the last), direction (forward, reverse or both).
// Results: y, of x's shape and type, and y_reverse where direction is both.
#include "core/associative/problem.hpp"
#include "core/error.hpp"
#include "core/names.hpp"
#include "host/associative/scan.hpp"
#include "xla/associative_frame.hpp"
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

// Checks `inputs` and the results.
Call read_call(const Frame& frame, AssociativeOp op, const core::AssociativeInputs& inputs,
               const core::AssociativeOptions& options) {
  Call call;
  call.problem = core::validate_associative(op, inputs, options);
  const bool both = options.direction == core::Direction::both;
  call.outputs.y = read_like(frame, 0, "y", inputs.x);
  if (both) call.outputs.y_reverse = read_like(frame, 1, "y_reverse", inputs.x);
  require_results(frame, both ? 2 : 1);
  return call;
}

Call read_cumulative(const Frame& frame) {
  const AssociativeOp op = core::associative_op_named(frame.text("op", "cumsum"), "op");
  if (op == AssociativeOp::linear_recurrence) {
    core::fail(core::ErrorKind::invalid_argument, "op", "linear_recurrence is exphil_linear_recurrence");
  }
  frame.require_known("op axis direction compensated");
  core::AssociativeOptions options = read_associative_options(frame);
  options.compensated = frame.boolean("compensated", false);
  const core::AssociativeInputs inputs{frame.argument(0, "x"), {}, {}};
  require_arguments(frame, 1);
  return read_call(frame, op, inputs, options);
}

Call read_recurrence(const Frame& frame) {
  frame.require_known("axis direction operands");
  core::AssociativeInputs inputs{frame.argument(1, "b"), frame.argument(0, "a"), {}};
  inputs.initial_state = read_initial_state(frame, 2);
  require_arguments(frame, inputs.initial_state ? 3 : 2);
  return read_call(frame, AssociativeOp::linear_recurrence, inputs, read_associative_options(frame));
}

template <Call (*Read)(const Frame&)>
void run_host(const Frame& frame) {
  const Call call = Read(frame);
  if (frame.executing()) host::associative_scan(call.problem, call.outputs);
}

#ifdef EXPHIL_CUDA
template <Call (*Read)(const Frame&)>
void run_cuda(const Frame& frame) {
  const auto [problem, outputs] = Read(frame);
  if (problem.elements() == 0) return;
  cuda::Context& context = context_of(frame);
  const cuda::ContextGuard guard(context);
  const cuda::AssociativePlan plan = cuda::plan_associative(problem);
  if (!frame.executing()) {
    context.kernels().get(plan.spec);
    return;
  }
  const Scratch scratch(frame, plan.scratch_bytes());
  const CUstream stream = stream_of(frame);
  const CUdeviceptr at = address_of(scratch.data());
  cuda::clear_associative(context, plan, at, stream);
  void* const y_reverse = outputs.y_reverse != nullptr ? outputs.y_reverse : outputs.y;
  cuda::launch_associative(context, plan, {problem.a, problem.x, problem.initial, outputs.y, y_reverse}, at,
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
